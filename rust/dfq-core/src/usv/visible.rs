//! The form that people can see: ␟ between fields, ␞ after records, ␛ before a character that is
//! content. The control characters they stand for are read, too.

use std::ops::Range;

use memchr::memchr2;

use super::{FIELD, RECORD};

// U+2400 to U+243F share their first two bytes.
const SYMBOL: [u8; 2] = [0xe2, 0x90];
const ESCAPE_SYMBOL: u8 = 0x9b;
const RECORD_SYMBOL: u8 = 0x9e;
const FIELD_SYMBOL: u8 = 0x9f;

/// Where the first record ends and the next one starts; or how much was looked at in vain.
pub fn find_end(bytes: &[u8]) -> Result<(usize, usize), usize> {
    let mut at = 0;
    while let Some(found) = memchr2(RECORD, SYMBOL[0], &bytes[at..]) {
        at += found;
        if bytes[at] == RECORD {
            return Ok((at, at + 1));
        }
        let Some(symbol) = bytes.get(at..at + 3) else {
            return Err(at);
        };
        match (symbol[1], symbol[2]) {
            (0x90, RECORD_SYMBOL) => return Ok((at, at + 3)),
            // A separator shows by its first byte alone, so that is all that has to be passed over:
            // the rest of the character, if it has one, looks like nothing else.
            (0x90, ESCAPE_SYMBOL) if bytes.len() > at + 3 => at += 4,
            (0x90, ESCAPE_SYMBOL) => return Err(at),
            _ => at += 1,
        }
    }
    Err(bytes.len())
}

/// `range` without the line breaks at both of its ends.
pub fn without_line_breaks(bytes: &[u8], mut range: Range<usize>) -> Range<usize> {
    let is_break = |at: usize| matches!(bytes[at], b'\n' | b'\r');
    while !range.is_empty() && is_break(range.start) {
        range.start += 1;
    }
    while !range.is_empty() && is_break(range.end - 1) {
        range.end -= 1;
    }
    range
}

/// The fields of a record.
pub fn fields(record: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut chars = record.chars();
    while let Some(char) = chars.next() {
        match char {
            '\u{241b}' => field.extend(chars.next()),
            '\u{241f}' => fields.push(std::mem::take(&mut field)),
            _ if char == FIELD as char => fields.push(std::mem::take(&mut field)),
            _ => field.push(char),
        }
    }
    fields.push(field);
    fields
}

/// Whether the beginning of a file looks like this form: a symbol comes before any control.
pub fn is_likely(beginning: &[u8]) -> bool {
    let symbol = memchr::memmem::find_iter(beginning, &SYMBOL)
        .find(|at| matches!(beginning.get(at + 2), Some(&RECORD_SYMBOL | &FIELD_SYMBOL)));
    let control = memchr2(FIELD, RECORD, beginning);
    symbol.is_some_and(|symbol| control.is_none_or(|control| symbol < control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_separator_is_content() {
        assert_eq!(fields("a␛␟b␟␛␛␟"), ["a␟b", "␛", ""]);
        let text = "a␛␞b␛␛␞c␞".as_bytes();
        let (end, next) = find_end(text).unwrap();
        assert_eq!(&text[..end], "a␛␞b␛␛".as_bytes());
        assert_eq!(&text[next..], "c␞".as_bytes());
    }

    #[test]
    fn a_broken_character_after_an_escape_hides_no_separator() {
        for broken in [&b"\xf0"[..], b"\xe2", b"\xe2\x90", b"\xff"] {
            let text = [b"a\xe2\x90\x9b", broken, b"\x1eb\x1e"].concat();
            assert_eq!(find_end(&text), Ok((4 + broken.len(), 5 + broken.len())));
            for cut in 4..text.len() - 3 {
                let scanned = find_end(&text[..cut]).unwrap_err();
                let (end, next) = find_end(&text[scanned..]).unwrap();
                assert_eq!((end + scanned, next + scanned), find_end(&text).unwrap());
            }
        }
    }

    #[test]
    fn a_symbol_that_is_cut_is_looked_at_again() {
        let text = "ab␞".as_bytes();
        for cut in 2..5 {
            assert_eq!(find_end(&text[..cut]), Err(2));
        }
        assert_eq!(find_end("a␛".as_bytes()), Err(1));
        assert_eq!(find_end("a☃b".as_bytes()), Err(5));
    }

    #[test]
    fn the_form_shows_by_what_comes_first() {
        assert!(is_likely("a␟b␞".as_bytes()));
        assert!(!is_likely("a\u{1f}b␟".as_bytes()));
        assert!(!is_likely(b"a\nb"));
        assert!(!is_likely("␛".as_bytes()));
    }
}
