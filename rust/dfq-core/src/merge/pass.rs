//! The pass over the shard: streams it past the winners of the inbox into a new file.

use super::report::Report;
use super::rules::Rules;
use super::sorted::SortedFile;
use super::version::Version;
use super::winners::{Sorted, Source};
use crate::error::Result;
use crate::usv::file::Input;
use crate::usv::output::Output;
use crate::usv::{FIELD, LINE};

const BUFFER: usize = 256 * 1024;

/// Writes the merged shard. `changed` is told by what was done, so the shard is read only once.
pub fn write(
    shard: Option<&str>,
    winners: &mut Sorted,
    output: &str,
    rules: &Rules,
    report: &mut Report,
) -> Result<()> {
    let mut shard = match shard {
        None => None,
        Some(path) => {
            let input = Input::open(path).map_err(|refusal| refusal.into_error(path))?;
            Some(SortedFile::start(input, rules, BUFFER)?)
        }
    };
    let mut pass = Pass {
        output: Output::create(output)?.with_thread(),
        rules,
        report,
    };
    loop {
        let new = winners.current();
        if let Some(shard) = &mut shard {
            while let Some(old) = shard.current() {
                if new.as_ref().is_some_and(|new| old.key >= new.key) {
                    break;
                }
                pass.keep(&old, shard.field_count())?;
                shard.advance(rules)?;
            }
        }
        let Some(new) = new else { break };
        let old = shard.as_ref().and_then(SortedFile::current);
        match old.filter(|old| old.key == new.key) {
            None => pass.take(&new)?,
            Some(old) if wins(&new, &old, rules.columns, &shard) => {
                pass.take(&new)?;
                pass.report.changed = true;
                if let Some(shard) = &mut shard {
                    shard.advance(rules)?;
                }
            }
            // The one of the shard comes before the next one of the inbox.
            Some(_) => pass.report.superseded += 1,
        }
        winners.advance()?;
    }
    let Pass { output, report, .. } = pass;
    let (written, _) = output.finish()?;
    report.bytes = written.bytes;
    report.sha256 = written.sha256;
    Ok(())
}

/// Whether a record of the inbox replaces that of the shard, which may still lack new columns.
fn wins(new: &Version<'_>, old: &Version<'_>, columns: usize, shard: &Option<SortedFile>) -> bool {
    let missing = columns - shard.as_ref().map_or(columns, SortedFile::field_count);
    if missing == 0 {
        return new.rank(old).is_gt();
    }
    let mut record = old.record.to_vec();
    record.extend(std::iter::repeat_n(FIELD, missing));
    let old = Version {
        record: &record,
        ..*old
    };
    new.rank(&old).is_gt()
}

struct Pass<'a> {
    output: Output,
    rules: &'a Rules,
    report: &'a mut Report,
}

impl Pass<'_> {
    /// Writes a record of the inbox.
    fn take(&mut self, version: &Version<'_>) -> Result<()> {
        self.report.taken += 1;
        if self.write(version, 0)? {
            self.report.changed = true;
        }
        Ok(())
    }

    /// Writes a record of the shard, which has so many fields.
    fn keep(&mut self, version: &Version<'_>, fields: usize) -> Result<()> {
        let missing = self.rules.columns - fields;
        if missing > 0 {
            self.report.padded += 1;
            self.report.changed = true;
        }
        if !self.write(version, missing)? {
            self.report.changed = true;
        }
        Ok(())
    }

    /// False: it is an old tombstone, and left out.
    #[inline]
    fn write(&mut self, version: &Version<'_>, missing: usize) -> Result<bool> {
        if version.tombstone {
            let limit = self.rules.drop_deleted_before_ns;
            if limit.is_some_and(|limit| version.updated_ns < limit) {
                self.report.dropped += 1;
                return Ok(false);
            }
            self.report.tombstones += 1;
        }
        let buffer = self.output.buffer();
        buffer.extend_from_slice(version.record);
        buffer.extend(std::iter::repeat_n(FIELD, missing));
        buffer.push(LINE);
        self.report.records += 1;
        if self
            .report
            .newest_ns
            .is_none_or(|newest| newest < version.updated_ns)
        {
            self.report.newest_ns = Some(version.updated_ns);
        }
        self.output.settle()?;
        Ok(true)
    }
}
