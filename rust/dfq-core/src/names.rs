//! Names of tasks, as a listing found them: one after the other in one piece of memory.

use crate::id;

/// Task ids, each behind its length.
#[derive(Default)]
pub struct Names {
    bytes: Vec<u8>,
    count: usize,
}

// The length is one byte.
const _: () = assert!(id::MAX_LENGTH <= u8::MAX as usize);

impl Names {
    /// Adds an id; one that is too long is none, and is left out.
    pub fn push(&mut self, name: &[u8]) {
        if let Ok(length) = u8::try_from(name.len()) {
            self.bytes.push(length);
            self.bytes.extend_from_slice(name);
            self.count += 1;
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many bytes all ids have together.
    pub fn total_length(&self) -> usize {
        self.bytes.len() - self.count
    }

    /// All ids, in the order they came.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first()?;
            let (name, behind) = behind.split_at(usize::from(*length));
            rest = behind;
            Some(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_come_back_in_their_order() {
        let longest = "k".repeat(id::MAX_LENGTH);
        let mut names = Names::default();
        for name in ["a", "b.c", &longest] {
            names.push(name.as_bytes());
        }
        let told: Vec<_> = names.iter().collect();
        assert_eq!(told, [b"a".as_slice(), b"b.c", longest.as_bytes()]);
        assert_eq!(
            (names.count(), names.total_length()),
            (3, 4 + id::MAX_LENGTH)
        );
    }
}
