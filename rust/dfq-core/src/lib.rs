//! The file queue of dfq: a work queue that is just a folder.
//!
//! [`queue::FileQueue`] has the verbs; start reading there. Nothing in this crate reads a clock
//! or draws randomness of its own: both are handed in, so that a test can own them.

pub mod archive;
pub mod chance;
pub mod envelope;
pub mod error;
mod forked;
pub mod host;
pub mod id;
pub mod index;
mod kept;
pub mod lease;
pub mod lock;
pub mod pending;
pub mod queue;
pub mod root;
pub mod scan;
pub mod sys;
pub mod time;
mod timetable;
pub mod watch;
