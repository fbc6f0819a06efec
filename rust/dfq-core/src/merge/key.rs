//! Keys that mean the same are made the same.

use std::borrow::Cow;

use memchr::memchr2;

use crate::id;
use crate::usv::escape::{escape_into, unescape};
use crate::usv::{has_control, ESCAPE};

/// How keys are made alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRule {
    /// They are left as they are.
    Exact,
    /// Lower case, as Unicode has it.
    Lower,
    /// Lower case, without white space around and dots at the end.
    Domain,
}

impl KeyRule {
    /// The rule of this name.
    pub fn from_name(name: &str) -> Option<KeyRule> {
        match name {
            "exact" => Some(KeyRule::Exact),
            "lower" => Some(KeyRule::Lower),
            "domain" => Some(KeyRule::Domain),
            _ => None,
        }
    }

    /// The key that `key` is kept under.
    pub fn normal(self, key: &str) -> Cow<'_, str> {
        match self {
            KeyRule::Exact => Cow::Borrowed(key),
            KeyRule::Lower => lower(key),
            KeyRule::Domain => {
                let edge = |char: char| char == '.' || char.is_whitespace();
                lower(key.trim_start().trim_end_matches(edge))
            }
        }
    }

    /// The same for a raw field. Borrowed: it is normal already, and escaped as dfq escapes.
    pub fn normal_field(self, field: &[u8]) -> Cow<'_, [u8]> {
        if self.is_plain(field) {
            return Cow::Borrowed(field);
        }
        let plain = unescape(field);
        let text = String::from_utf8_lossy(&plain);
        let mut raw = Vec::with_capacity(field.len());
        escape_into(&mut raw, self.normal(&text).as_bytes());
        if raw == field {
            Cow::Borrowed(field)
        } else {
            Cow::Owned(raw)
        }
    }

    /// Whether a field is seen to be normal at a glance.
    fn is_plain(self, field: &[u8]) -> bool {
        if self == KeyRule::Exact {
            return !has_control(field) || memchr2(ESCAPE, b'\r', field).is_none();
        }
        let odd = |byte: &u8| !matches!(*byte, 0x21..=0x7e) || byte.is_ascii_uppercase();
        let ends_with_dot = self == KeyRule::Domain && field.last() == Some(&b'.');
        // Without a way out of the loop it is made of vectors.
        !ends_with_dot && !field.iter().fold(false, |found, byte| found | odd(byte))
    }
}

fn lower(text: &str) -> Cow<'_, str> {
    if text
        .bytes()
        .all(|b| b.is_ascii() && !b.is_ascii_uppercase())
    {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.to_lowercase())
    }
}

/// The shard of a raw, normal key field.
pub fn shard_of_field(field: &[u8]) -> u8 {
    id::shard_of(&String::from_utf8_lossy(&unescape(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_makes_alike_what_it_should() {
        let normal = |rule: KeyRule, key: &str| rule.normal(key).into_owned();
        assert_eq!(normal(KeyRule::Exact, " A. "), " A. ");
        assert_eq!(normal(KeyRule::Lower, " ÄB. "), " äb. ");
        assert_eq!(normal(KeyRule::Domain, " Example.COM. . "), "example.com");
        assert_eq!(normal(KeyRule::Domain, ".a.b"), ".a.b");
        assert_eq!(normal(KeyRule::Domain, "..."), "");
    }

    #[test]
    fn a_normal_key_stays() {
        for rule in [KeyRule::Exact, KeyRule::Lower, KeyRule::Domain] {
            for key in ["a", "ΑΣ", "İx", "a. b.", "\u{1b}n", " ", "ǅ", "x\u{85}."] {
                let once = rule.normal(key).into_owned();
                assert_eq!(rule.normal(&once), once, "{rule:?} {key:?}");
                let mut field = Vec::new();
                escape_into(&mut field, once.as_bytes());
                assert_eq!(rule.normal_field(&field), field);
                assert!(matches!(rule.normal_field(&field), Cow::Borrowed(_)));
            }
        }
    }

    #[test]
    fn a_key_is_escaped_in_one_way() {
        assert_eq!(KeyRule::Exact.normal_field(b"a\x1b[m"), &b"a\x1be[m"[..]);
        assert_eq!(KeyRule::Exact.normal_field(b"a\rb"), &b"a\x1brb"[..]);
        assert_eq!(KeyRule::Lower.normal_field(b"A\x1bnB"), &b"a\x1bnb"[..]);
        // An escaped line feed at the end of a domain is white space.
        assert_eq!(KeyRule::Domain.normal_field(b"a.b.\x1bn"), &b"a.b"[..]);
    }

    #[test]
    fn the_shard_is_that_of_the_key_itself() {
        assert_eq!(shard_of_field(b"a\x1bnb"), id::shard_of("a\nb"));
    }
}
