//! Writes records in canonical form.

use super::escape::escape_into;
use super::output::{Output, Written};
use super::{FIELD, LINE};
use crate::error::{Error, Kind, Result};

/// Appends one record. A record of one empty field gets a separator after it, because an empty
/// line would be no record.
pub fn record_into<'a>(out: &mut Vec<u8>, fields: impl IntoIterator<Item = &'a [u8]>) {
    let start = out.len();
    for (index, field) in fields.into_iter().enumerate() {
        if index > 0 {
            out.push(FIELD);
        }
        escape_into(out, field);
    }
    if out.len() == start {
        out.push(FIELD);
    }
    out.push(LINE);
}

/// A new USV file.
pub struct Writer {
    output: Output,
    records: u64,
}

impl Writer {
    /// Creates a file that must not be there yet.
    pub fn create(path: &str) -> Result<Writer> {
        let output = Output::create(path)?;
        Ok(Writer { output, records: 0 })
    }

    /// Appends one record, which has a field at least.
    pub fn write<'a>(&mut self, fields: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<()> {
        if fields.len() == 0 {
            let message = format!("record {} has no field; give it one", self.records + 1);
            return Err(Error::new(Kind::Invalid, message));
        }
        record_into(self.output.buffer(), fields);
        self.records += 1;
        self.output.settle()
    }

    /// Ends the file; returns how many records it has.
    pub fn finish(self) -> Result<(u64, Written)> {
        let (written, _) = self.output.finish()?;
        Ok((self.records, written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fields: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        record_into(&mut out, fields.iter().map(|field| field.as_bytes()));
        out
    }

    #[test]
    fn fields_are_separated_and_a_line_feed_ends_the_record() {
        assert_eq!(record(&["a", "", "b"]), b"a\x1f\x1fb\n");
        assert_eq!(record(&["a\nb", "\x1b"]), b"a\x1bnb\x1f\x1be\n");
    }

    #[test]
    fn a_record_of_one_empty_field_is_no_empty_line() {
        assert_eq!(record(&[""]), b"\x1f\n");
    }
}
