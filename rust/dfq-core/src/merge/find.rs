//! Finds one record of a shard by binary search over its bytes.

use std::cmp::Ordering;

use memchr::memchr;

use super::key::KeyRule;
use crate::error::{Error, Kind, Result};
use crate::usv::escape::escape_into;
use crate::usv::fields::Fields;
use crate::usv::file::{Input, Refusal};
use crate::usv::{longest_canonical, LINE, MAX_RECORD_BYTES};

const BLOCK: usize = 8 * 1024;

/// Where to look.
pub struct Place<'a> {
    /// The shard.
    pub path: &'a str,
    /// How many columns there are.
    pub columns: usize,
    /// The column of the key, from 0.
    pub key: usize,
    /// How keys are made alike.
    pub key_rule: KeyRule,
}

/// The raw record of a key, which may be a tombstone, without its end. A shard that is not there
/// has none.
pub fn find(place: &Place<'_>, key: &str) -> Result<Option<Vec<u8>>> {
    let mut wanted = Vec::new();
    escape_into(&mut wanted, place.key_rule.normal(key).as_bytes());
    let mut input = match Input::open(place.path) {
        Ok(input) => input,
        Err(Refusal::Missing) => return Ok(None),
        Err(refusal) => return Err(refusal.into_error(place.path)),
    };
    let limit = longest_canonical(MAX_RECORD_BYTES, place.columns);
    let mut fields = Fields::default();
    let mut line = Vec::new();
    // Records that start in low..high are still possible.
    let (mut low, mut high) = (0, input.size());
    while low < high {
        let middle = low + (high - low) / 2;
        let mut start = middle;
        if middle > low {
            // A record starts after the first line feed at or after the byte before.
            if read_line(&mut input, middle - 1, &mut line, limit)? == Line::TooLong {
                return Err(unreadable(place.path, middle));
            }
            start = middle + line.len() as u64;
        }
        if start >= high {
            high = middle;
            continue;
        }
        match read_line(&mut input, start, &mut line, limit)? {
            Line::Whole => {}
            Line::Unended => return Err(torn(place.path, start)),
            Line::TooLong => return Err(unreadable(place.path, start)),
        }
        match key_of(&line, place, &mut fields) {
            Some(found) => match line[found].cmp(&wanted) {
                Ordering::Equal => return Ok(Some(line)),
                Ordering::Less => low = start + line.len() as u64 + 1,
                Ordering::Greater => high = middle,
            },
            None => return Err(unreadable(place.path, start)),
        }
    }
    Ok(None)
}

fn key_of(record: &[u8], place: &Place<'_>, fields: &mut Fields) -> Option<std::ops::Range<usize>> {
    let sound = std::str::from_utf8(record).is_ok()
        && fields.find(record)
        && fields.count() <= place.columns
        && !fields.range(place.key).is_empty();
    sound.then(|| fields.range(place.key))
}

/// What was read.
#[derive(PartialEq)]
enum Line {
    Whole,
    /// The file ends before it.
    Unended,
    /// It is longer than any record.
    TooLong,
}

/// Reads from `at` to the next line feed, which is left out.
fn read_line(input: &mut Input, at: u64, line: &mut Vec<u8>, limit: usize) -> Result<Line> {
    line.clear();
    input.seek(at);
    loop {
        let had = line.len();
        if had > limit {
            return Ok(Line::TooLong);
        }
        line.resize(had + BLOCK.max(had.min(limit - had)), 0);
        let count = input.read(&mut line[had..])?;
        if let Some(end) = memchr(LINE, &line[had..had + count]) {
            line.truncate(had + end);
            return Ok(Line::Whole);
        }
        line.truncate(had + count);
        if count == 0 {
            return Ok(Line::Unended);
        }
    }
}

fn torn(path: &str, at: u64) -> Error {
    let message = format!("{path} is torn at byte {at}: its last line feed is missing");
    Error::new(Kind::Damaged, message)
}

fn unreadable(path: &str, at: u64) -> Error {
    let message =
        format!("the record at byte {at} of {path} is damaged; mend the shard, or restore a copy");
    Error::new(Kind::Damaged, message)
}
