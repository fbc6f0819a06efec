//! One record of a key, and which of two wins.
//!
//! The later `updated_at`, as a moment; of equal ones a tombstone; of equal ones the greater list
//! of raw fields, compared field by field as bytes. Only equal records are equal.

use std::cmp::Ordering;

use crate::usv::FIELD;

/// A canonical record, without its end, and what decides about it.
#[derive(Debug, Clone, Copy)]
pub struct Version<'a> {
    /// The record.
    pub record: &'a [u8],
    /// Its raw key field.
    pub key: &'a [u8],
    /// When it was updated, in nanoseconds since 1970.
    pub updated_ns: i128,
    /// Whether it deletes its key.
    pub tombstone: bool,
}

impl Version<'_> {
    /// Greater: this one wins over `other`, which has the same key.
    pub fn rank(&self, other: &Version<'_>) -> Ordering {
        self.updated_ns
            .cmp(&other.updated_ns)
            .then(self.tombstone.cmp(&other.tombstone))
            .then_with(|| fields_order(self.record, other.record))
    }
}

fn fields_order(left: &[u8], right: &[u8]) -> Ordering {
    let fields = |record| <[u8]>::split(record, |byte| *byte == FIELD);
    fields(left).cmp(fields(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(record: &[u8], updated_ns: i128, tombstone: bool) -> Version<'_> {
        Version {
            record,
            key: b"k",
            updated_ns,
            tombstone,
        }
    }

    #[test]
    fn time_comes_first_then_tombstones_then_the_fields() {
        let old_tombstone = version(b"z", 1, true);
        let new = version(b"a", 2, false);
        let new_tombstone = version(b"a", 2, true);
        let other = version(b"b", 2, false);
        assert_eq!(new.rank(&old_tombstone), Ordering::Greater);
        assert_eq!(new_tombstone.rank(&other), Ordering::Greater);
        assert_eq!(other.rank(&new), Ordering::Greater);
        assert_eq!(new.rank(&new), Ordering::Equal);
    }

    #[test]
    fn fields_are_compared_one_by_one() {
        // As bytes in a row, a tab would come before a separator.
        let short = version(b"a\x1fz", 1, false);
        let long = version(b"a\tb\x1fa", 1, false);
        assert_eq!(long.rank(&short), Ordering::Greater);
    }
}
