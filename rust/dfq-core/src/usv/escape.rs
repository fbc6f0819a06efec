//! Escapes: `ESC n` is LF, `ESC r` CR, `ESC u` 0x1F, `ESC s` 0x1E and `ESC e` ESC itself.
//!
//! The writer escapes all five. The reader leaves ESC before anything else as it is, so that the
//! colours in somebody's terminal output survive.

use std::borrow::Cow;

use memchr::memchr;

use super::{ESCAPE, FIELD, LINE, RECORD};

/// The letter that stands for a byte which no field may contain.
fn letter(byte: u8) -> Option<u8> {
    match byte {
        LINE => Some(b'n'),
        b'\r' => Some(b'r'),
        FIELD => Some(b'u'),
        RECORD => Some(b's'),
        ESCAPE => Some(b'e'),
        _ => None,
    }
}

fn meant(letter: u8) -> Option<u8> {
    match letter {
        b'n' => Some(LINE),
        b'r' => Some(b'\r'),
        b'u' => Some(FIELD),
        b's' => Some(RECORD),
        b'e' => Some(ESCAPE),
        _ => None,
    }
}

/// Appends `field`, escaped.
pub fn escape_into(out: &mut Vec<u8>, field: &[u8]) {
    // All five are control characters: most fields have none, and this loop is made of vectors.
    if !field
        .iter()
        .fold(false, |found, byte| found | (*byte < 0x20))
    {
        out.extend_from_slice(field);
        return;
    }
    for byte in field {
        match letter(*byte) {
            Some(letter) => out.extend_from_slice(&[ESCAPE, letter]),
            None => out.push(*byte),
        }
    }
}

/// The field as it was before it was escaped.
pub fn unescape(field: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr(ESCAPE, field) else {
        return Cow::Borrowed(field);
    };
    let mut plain = field[..first].to_vec();
    let mut rest = &field[first..];
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != ESCAPE {
            plain.push(*byte);
            continue;
        }
        match tail {
            [next, after @ ..] => {
                rest = after;
                match meant(*next) {
                    Some(byte) => plain.push(byte),
                    None => plain.extend_from_slice(&[ESCAPE, *next]),
                }
            }
            [] => plain.push(ESCAPE),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(field: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        escape_into(&mut out, field);
        out
    }

    #[test]
    fn any_bytes_survive_and_none_of_them_separates() {
        for first in 0..=255u8 {
            for second in [0x1b, 0x1e, 0x1f, b'\n', b'\r', b'n', b'e', 0x00, 0xff] {
                let field = [b'x', first, second, first];
                let written = escaped(&field);
                assert_eq!(unescape(&written), &field[..]);
                assert!(!written
                    .iter()
                    .any(|b| matches!(*b, 0x1e | 0x1f | b'\n' | b'\r')));
            }
        }
    }

    #[test]
    fn a_foreign_escape_stands_for_itself() {
        for field in [&b"\x1b[31mred\x1b[0m"[..], b"\x1b", b"a\x1b\x1bn", b"\x1bx"] {
            assert_eq!(unescape(field), field);
        }
    }
}
