//! USV: records of fields, separated by control characters that text does not have.
//!
//! Written form: fields separated by 0x1F, each record ended by a line feed. Read as well: 0x1E as
//! the end of a record, with or without a line feed after it, and a 0x1F after the last field. A
//! carriage return is data. Empty lines are no records.
//!
//! What a field may not contain is escaped without loss, by 0x1B (ESC) and a letter; see
//! [`escape`]. Text is UTF-8. [`Ends::Visible`] reads the form with symbols (␟ ␞ ␛) instead.

pub mod check;
pub mod escape;
pub mod fields;
pub mod file;
pub mod framer;
mod hashing;
pub mod output;
pub mod reader;
pub mod visible;
pub mod writer;

pub use framer::Ends;

/// Stands between two fields.
pub const FIELD: u8 = 0x1f;
/// Ends a record, in files of others.
pub const RECORD: u8 = 0x1e;
/// Ends a record.
pub const LINE: u8 = b'\n';
/// Begins an escape.
pub const ESCAPE: u8 = 0x1b;

/// A longer record is never loaded.
pub const MAX_RECORD_BYTES: usize = 16 << 20;

/// How long a canonical record can get that was made of one of `limit` bytes: an escape is two
/// bytes for one, no letter grows by more, and there is a separator for each missing column.
pub const fn longest_canonical(limit: usize, columns: usize) -> usize {
    limit.saturating_mul(2).saturating_add(columns)
}

/// Marks the bytes of eight that are below 0x20, each by its highest bit. Bytes after the first of
/// them may be marked, too: look again.
#[inline]
fn controls(bytes: &[u8; 8]) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(*bytes);
    word.wrapping_sub(0x20 * EACH) & !word & (0x80 * EACH)
}

/// Whether a byte below 0x20 is among these: all that is ever escaped is.
#[inline]
pub(crate) fn has_control(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().any(|word| controls(word) != 0) || rest.iter().any(|byte| *byte < 0x20)
}
