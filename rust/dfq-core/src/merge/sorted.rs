//! Streams a file that dfq wrote: canonical records, sorted by key, each key once.
//!
//! Whatever is not so is damage, and an error: a shard must not be rewritten from a guess.

use std::ops::Range;

use super::rules::Rules;
use super::version::Version;
use crate::error::{Error, Kind, Result};
use crate::iso;
use crate::usv::fields::Fields;
use crate::usv::file::Input;
use crate::usv::framer::{Ends, Event, Framer};
use crate::usv::longest_canonical;

/// What is known of a record.
pub struct Known {
    /// Its key field.
    pub key: Range<usize>,
    /// When it was updated.
    pub updated_ns: i128,
    /// Whether it deletes its key.
    pub tombstone: bool,
    /// How many fields it has.
    pub fields: usize,
}

/// Looks at a record that is UTF-8; says what is wrong with it.
pub fn know(
    record: &[u8],
    rules: &Rules,
    fields: &mut Fields,
) -> std::result::Result<Known, String> {
    if !fields.find(record) {
        return Err("has a 0x1E".to_owned());
    }
    if fields.count() > rules.columns {
        let (count, columns) = (fields.count(), rules.columns);
        return Err(format!("has {count} fields where the index has {columns}"));
    }
    let key = fields.range(rules.key);
    if key.is_empty() {
        return Err("has no key".to_owned());
    }
    if matches!(
        rules.key_rule.normal_field(&record[key.clone()]),
        std::borrow::Cow::Owned(_)
    ) {
        return Err("has a key that is not written as the rule for keys says".to_owned());
    }
    let updated_ns = iso::parse_ns(&record[fields.range(rules.updated_at)])
        .ok_or_else(|| "has an updated_at that is no time".to_owned())?;
    Ok(Known {
        key,
        updated_ns,
        tombstone: !fields.range(rules.deleted_at).is_empty(),
        fields: fields.count(),
    })
}

/// The records of a file.
pub struct SortedFile {
    input: Input,
    framer: Framer,
    fields: Fields,
    record: Range<usize>,
    known: Option<Known>,
    number: u64,
    /// The key before this record, once its place in the buffer is needed for others.
    saved_key: Vec<u8>,
}

impl SortedFile {
    /// Begins with the first record. `chunk`: how much is read at once.
    pub fn start(input: Input, rules: &Rules, chunk: usize) -> Result<SortedFile> {
        // What has no line feed for so long is damage, and must not be loaded to say so.
        let limit = longest_canonical(rules.max_record_bytes, rules.columns);
        let framer = Framer::with_chunk(Ends::LineFeed, limit, chunk);
        let mut file = SortedFile {
            input,
            framer,
            fields: Fields::default(),
            record: 0..0,
            known: None,
            number: 0,
            saved_key: Vec::new(),
        };
        file.advance(rules)?;
        Ok(file)
    }

    /// The record at hand.
    #[inline]
    pub fn current(&self) -> Option<Version<'_>> {
        let known = self.known.as_ref()?;
        let record = self.framer.bytes(&self.record);
        Some(Version {
            record,
            key: &record[known.key.clone()],
            updated_ns: known.updated_ns,
            tombstone: known.tombstone,
        })
    }

    /// How many fields the record at hand has.
    pub fn field_count(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.fields)
    }

    /// Goes to the next record.
    pub fn advance(&mut self, rules: &Rules) -> Result<()> {
        let mut last_key = self.known.take().map(|known| {
            let start = self.record.start;
            start + known.key.start..start + known.key.end
        });
        loop {
            match self.framer.next() {
                Event::Record(range) => {
                    self.number += 1;
                    return self.look(range, last_key, rules);
                }
                Event::More => {
                    // What the buffer has is about to move.
                    if let Some(key) = last_key.take() {
                        self.saved_key.clear();
                        self.saved_key.extend_from_slice(self.framer.bytes(&key));
                    }
                    let count = self.input.read(self.framer.room())?;
                    self.framer.fill(count);
                }
                Event::LongPart(_) | Event::LongEnd(_) => {
                    self.number += 1;
                    return Err(self.damaged("is longer than any that was merged"));
                }
                Event::End => return Ok(()),
            }
        }
    }

    /// `last_key`: where in the buffer the key before it is; None: it was saved.
    #[inline]
    fn look(
        &mut self,
        range: Range<usize>,
        last_key: Option<Range<usize>>,
        rules: &Rules,
    ) -> Result<()> {
        if self.framer.unended() {
            return Err(self.damaged("is torn: its line feed is missing"));
        }
        if !self.framer.is_text(&range) {
            return Err(self.damaged("is not UTF-8"));
        }
        let record = self.framer.bytes(&range);
        let known = match know(record, rules, &mut self.fields) {
            Ok(known) => known,
            Err(problem) => return Err(self.damaged(&problem)),
        };
        let key = &record[known.key.clone()];
        let last_key = match &last_key {
            Some(place) => self.framer.bytes(place),
            None => &self.saved_key,
        };
        // The first one has nothing before it, which is less than any key.
        if key <= last_key {
            let problem = if key == last_key {
                "has the key of the one before it"
            } else {
                "is not in the order of keys"
            };
            return Err(self.damaged(problem));
        }
        self.record = range;
        self.known = Some(known);
        Ok(())
    }

    fn damaged(&self, problem: &str) -> Error {
        damaged(self.input.path(), self.number, problem)
    }
}

/// The error about a record of a shard.
fn damaged(path: &str, number: u64, problem: &str) -> Error {
    let message = format!(
        "record {number} of {path} {problem}; the shard is left as it is. Mend it, or restore a \
         copy, and compile it again"
    );
    Error::new(Kind::Damaged, message)
}
