//! Merges an inbox of small USV files into a sorted shard.
//!
//! Of all records with one key one wins, by an order that is total (see [`version`]); so it does
//! not matter who merges what first, or how often. The inbox is held in memory up to a bound, then
//! spilled in sorted runs; the shard is streamed past it into a new file, hashed on the way. What
//! can't be merged is copied into a file of rejects, with its reason. A shard that is not as dfq
//! writes shards is an error: nothing is made of it.

mod candidate;
pub mod find;
mod inbox;
pub mod key;
mod pass;
mod rejects;
mod report;
pub mod rules;
mod runs;
mod sorted;
mod version;
mod winners;

pub use inbox::Body;
pub use report::{Reject, Report};
pub use rules::Rules;

use crate::error::Result;
use rejects::Rejects;
use winners::Winners;

/// Merges `inbox`, read in this order, into the shard at `shard`, and writes the file `output`.
///
/// `output` must not be there yet, nor `rejects`, which is made only if something was rejected.
/// Inbox entries have a name for reports and a body.
pub fn merge(
    shard: Option<&str>,
    inbox: &[(String, Body<'_>)],
    output: &str,
    rejects: &str,
    rules: &Rules,
) -> Result<Report> {
    let mut report = Report::default();
    let mut rejected = Rejects::new(rejects);
    let mut winners = Winners::new(rules);
    inbox::read(inbox, rules, &mut winners, &mut rejected, &mut report)?;
    let mut source = winners.finish()?;
    pass::write(shard, &mut source, output, rules, &mut report)?;
    // Of what was spilled it is only known now.
    report.superseded += source.superseded();
    report.rejects = rejected.finish()?;
    Ok(report)
}

#[cfg(test)]
mod tests;
