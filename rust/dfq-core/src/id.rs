//! Task ids: what may be a directory name and an object key everywhere, and its shard.

use sha2::{Digest, Sha256};

/// The longest id.
pub const MAX_LENGTH: usize = 200;

/// Whether `name` is a task id: letters, digits, `.`, `_`, `-`, not starting with a dot.
pub fn is_valid(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= MAX_LENGTH
        && name[0] != b'.'
        && name.iter().all(|b| IN_AN_ID[usize::from(*b)])
}

/// By byte: a scan asks this of every byte of every name.
static IN_AN_ID: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        byte += 1;
    }
    table
};

/// The shard of an id: the first byte of its sha256.
pub fn shard_of(id: &str) -> u8 {
    Sha256::digest(id.as_bytes())[0]
}

/// A shard's directory name: two hex digits.
pub fn shard_name(shard: u8) -> &'static str {
    const NAMES: &str = concat!(
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f",
        "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f",
        "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f",
        "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf",
        "c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf",
        "e0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
    );
    let start = usize::from(shard) * 2;
    &NAMES[start..start + 2]
}

/// The shard a directory name stands for, if it is one.
pub fn shard_from_name(name: &[u8]) -> Option<u8> {
    if name.len() != 2 || !name.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_plain_file_name() {
        for good in [
            "a",
            "a.b",
            "2026-01-22-001-x7m",
            "-x",
            "_y",
            &"k".repeat(200),
        ] {
            assert!(is_valid(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "a\0b",
            "é",
            "a b",
            &"k".repeat(201),
        ] {
            assert!(!is_valid(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn a_shard_has_two_hex_digits_of_the_sha256() {
        // sha256("abc") starts with ba 78 16.
        assert_eq!(shard_name(shard_of("abc")), "ba");
        for shard in 0..=255u8 {
            assert_eq!(shard_from_name(shard_name(shard).as_bytes()), Some(shard));
        }
        assert_eq!(shard_from_name(b"BA"), None);
        assert_eq!(shard_from_name(b"0"), None);
    }
}
