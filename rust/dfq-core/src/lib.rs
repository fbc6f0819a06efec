//! The file queue of dfq: a work queue that is just a folder.
//!
//! [`queue::FileQueue`] has the verbs; start reading there. No verb reads a clock
//! or draws randomness of its own: both are handed in, so that a test can own them.

mod archive;
mod boot;
mod chance;
pub mod envelope;
pub mod error;
pub mod filter;
mod forked;
mod host;
pub mod id;
mod index;
pub mod iso;
mod kept;
mod layout;
pub mod lease;
pub mod listing;
mod lock;
pub mod merge;
mod names;
mod pending;
pub mod queue;
pub mod root;
mod scan;
mod shard;
mod sys;
pub mod time;
mod timetable;
pub mod usv;
mod view;
mod watch;
