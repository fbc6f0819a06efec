//! The fields of one raw record.

use std::ops::Range;

use super::{controls, FIELD, RECORD};

/// Where the fields of a record are; kept to be filled again.
#[derive(Default)]
pub struct Fields {
    /// Where each field ends.
    ends: Vec<u32>,
}

impl Fields {
    /// Finds the fields of `record`. False: it has a 0x1E, which no record has inside.
    pub fn find(&mut self, record: &[u8]) -> bool {
        self.ends.clear();
        // Most fields are short: a search that begins anew behind each separator costs more.
        let (words, rest) = record.as_chunks::<8>();
        for (number, word) in words.iter().enumerate() {
            let mut marks = controls(word);
            while marks != 0 {
                let at = number * 8 + (marks.trailing_zeros() / 8) as usize;
                if !self.look(record[at], at) {
                    return false;
                }
                marks &= marks - 1;
            }
        }
        let start = record.len() - rest.len();
        for (at, byte) in rest.iter().enumerate() {
            if !self.look(*byte, start + at) {
                return false;
            }
        }
        self.ends.push(record.len() as u32);
        true
    }

    #[inline]
    fn look(&mut self, byte: u8, at: usize) -> bool {
        if byte == FIELD {
            self.ends.push(at as u32);
        }
        byte != RECORD
    }

    /// How many there are; an empty record has one.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Where a field stands; an empty range at the end if the record is too short to have it.
    pub fn range(&self, index: usize) -> Range<usize> {
        let last = self.ends.last().copied().unwrap_or(0) as usize;
        let end = self.ends.get(index).map_or(last, |end| *end as usize);
        match index {
            0 => 0..end,
            _ => self
                .ends
                .get(index - 1)
                .map_or(last..last, |before| (*before as usize + 1).min(end)..end),
        }
    }

    /// Whether the last field is empty: then its separator may as well end the one before it.
    pub fn ends_with_separator(&self) -> bool {
        self.count() > 1 && self.range(self.count() - 1).is_empty()
    }

    /// Leaves out the last field.
    pub fn drop_last(&mut self) {
        self.ends.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_between_separators() {
        let mut fields = Fields::default();
        let record = b"ab\x1f\x1fc";
        assert!(fields.find(record));
        let texts: Vec<_> = (0..4).map(|i| &record[fields.range(i)]).collect();
        assert_eq!(texts, [&b"ab"[..], b"", b"c", b""]);
        assert_eq!(fields.count(), 3);
    }

    #[test]
    fn separators_are_found_wherever_they_stand_among_other_bytes() {
        let mut fields = Fields::default();
        for length in 0..40 {
            for other in [0x00, 0x1b, 0x20, 0x7f, 0x80, 0x9f, 0xff] {
                for at in 0..length {
                    let mut record = vec![other; length];
                    record[at] = FIELD;
                    record[length - 1] = FIELD;
                    let mut ends = vec![at];
                    ends.extend((at < length - 1).then_some(length - 1));
                    ends.push(length);
                    assert!(fields.find(&record));
                    let found: Vec<_> = (0..fields.count()).map(|i| fields.range(i).end).collect();
                    assert_eq!(found, ends);
                    record[at] = RECORD;
                    assert!(!fields.find(&record));
                }
            }
        }
    }

    #[test]
    fn a_separator_after_the_last_field_can_be_left_out() {
        let mut fields = Fields::default();
        fields.find(b"a\x1fb\x1f");
        assert!(fields.ends_with_separator());
        fields.drop_last();
        assert_eq!((fields.count(), fields.range(1)), (2, 2..3));
        fields.find(b"");
        assert!(!fields.ends_with_separator());
    }

    #[test]
    fn a_record_separator_inside_is_noticed() {
        assert!(!Fields::default().find(b"a\x1eb"));
    }
}
