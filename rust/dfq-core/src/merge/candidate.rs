//! A record of the inbox: checked, and made canonical.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;

use super::key::shard_of_field;
use super::report::Kind;
use super::rules::Rules;
use crate::id;
use crate::iso;
use crate::usv::fields::Fields;
use crate::usv::{ESCAPE, FIELD};

/// What is known of a record that was taken in.
#[derive(Debug)]
pub struct Candidate {
    /// The canonical record, within where it was put.
    pub record: Range<usize>,
    /// Its key field, within the record.
    pub key: Range<usize>,
    /// When it was updated.
    pub updated_ns: i128,
    /// Whether it deletes its key.
    pub tombstone: bool,
    /// Whether the key had to be rewritten.
    pub normalised: bool,
    /// Whether fields were missing at the end.
    pub padded: bool,
}

/// Why a record is rejected, and the same for a person.
pub type Refused = (Kind, String);

/// Checks a raw record that is UTF-8 and appends its canonical form to `out`, which stays as it
/// was if the record is refused.
pub fn take(
    raw: &[u8],
    rules: &Rules,
    fields: &mut Fields,
    out: &mut Vec<u8>,
) -> Result<Candidate, Refused> {
    fields.find(raw);
    if fields.count() == rules.columns + 1 && fields.ends_with_separator() {
        fields.drop_last();
    }
    let count = fields.count();
    if count > rules.columns {
        let message = format!("{count} fields where the index has {}", rules.columns);
        return Err((Kind::TooManyFields, message));
    }
    let key = rules.key_rule.normal_field(&raw[fields.range(rules.key)]);
    if key.is_empty() {
        return Err((Kind::MissingKey, "its key is empty".to_owned()));
    }
    let updated_ns = updated(&raw[fields.range(rules.updated_at)])?;
    let deleted_at = &raw[fields.range(rules.deleted_at)];
    if !deleted_at.is_empty() && deleted_at.iter().all(u8::is_ascii_whitespace) {
        // Lines of a foreign system would otherwise delete whatever they name.
        let message = "its deleted_at is nothing but white space; leave it empty, or end the \
                       record with a line feed alone";
        return Err((Kind::BadDeletedAt, message.to_owned()));
    }
    let tombstone = !deleted_at.is_empty();
    if let Some(shard) = rules.shard {
        let own = shard_of_field(&key);
        if own != shard {
            let (own, shard) = (id::shard_name(own), id::shard_name(shard));
            let message = format!("its key belongs to shard {own}, not to {shard}");
            return Err((Kind::Misplaced, message));
        }
    }
    let start = out.len();
    let normalised = matches!(key, Cow::Owned(_));
    let key_range = write(raw, &key, normalised, rules, fields, out);
    Ok(Candidate {
        record: start..out.len(),
        key: key_range,
        updated_ns,
        tombstone,
        normalised,
        padded: count < rules.columns,
    })
}

fn updated(field: &[u8]) -> Result<i128, Refused> {
    if field.is_empty() {
        return Err((Kind::MissingUpdatedAt, "its updated_at is empty".to_owned()));
    }
    iso::parse_ns(field).ok_or_else(|| {
        let shown: String = String::from_utf8_lossy(field).chars().take(40).collect();
        let message = format!("its updated_at {shown:?} is no ISO 8601 time");
        (Kind::BadUpdatedAt, message)
    })
}

/// Appends the record with this key; returns where the key stands in it.
fn write(
    raw: &[u8],
    key: &[u8],
    is_new_key: bool,
    rules: &Rules,
    fields: &Fields,
    out: &mut Vec<u8>,
) -> Range<usize> {
    let start = out.len();
    let count = fields.count();
    let end = fields.range(count - 1).end;
    let mut key_range = fields.range(rules.key);
    if !is_new_key && memchr(b'\r', &raw[..end]).is_none() {
        out.extend_from_slice(&raw[..end]);
    } else {
        for index in 0..count {
            if index > 0 {
                out.push(FIELD);
            }
            if index == rules.key {
                let begin = out.len() - start;
                out.extend_from_slice(key);
                key_range = begin..begin + key.len();
            } else {
                without_returns(&raw[fields.range(index)], out);
            }
        }
    }
    out.extend(std::iter::repeat_n(FIELD, rules.columns - count));
    key_range
}

/// Readers of CSV take a carriage return for the end of a line.
fn without_returns(field: &[u8], out: &mut Vec<u8>) {
    for byte in field {
        match byte {
            b'\r' => out.extend_from_slice(&[ESCAPE, b'r']),
            _ => out.push(*byte),
        }
    }
}
