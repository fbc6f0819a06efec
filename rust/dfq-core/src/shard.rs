//! The entries of one shard directory, small: a name in an arena and twelve bytes.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::envelope::NORMAL_PRIORITY;
use crate::names::Names;

/// The group of tasks whose envelope was not read yet.
pub const UNREAD: u32 = 0;

/// What is known about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The slot is free.
    Free,
    /// Worth a try.
    Ready,
    /// A try found a lease.
    Leased,
    /// Not before its time.
    Delayed,
    /// Waits for another task.
    Blocked,
    /// Can't be read; it gets a moment in case somebody is still writing it.
    Damaged,
}

/// One task of a shard.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    offset: u32,
    length: u8,
    /// Whether it may be claimable.
    pub place: Place,
    /// Its priority, as far as known.
    pub priority: i16,
    /// Tasks of one group are alike in all that filters ask for.
    pub group: u32,
}

/// An entry's address: shard and slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref(u32);

impl Ref {
    /// The entry in this slot of this shard.
    pub fn new(shard: u8, slot: usize) -> Ref {
        Ref(u32::from(shard) << 24 | slot as u32)
    }

    /// The shard of the entry (0 in the flat layout).
    pub fn shard(self) -> u8 {
        (self.0 >> 24) as u8
    }

    /// The slot within the shard.
    pub fn slot(self) -> usize {
        (self.0 & 0x00ff_ffff) as usize
    }
}

/// The most tasks one shard directory may hold.
const MAX_SLOTS: usize = 1 << 24;

/// Bytes of names that are gone, before those that stay move together. There are 256 shards, and
/// on a small machine the worker's memory should settle soon.
const MAX_GARBAGE: usize = 1 << 10;

/// The entries of one shard directory.
#[derive(Default)]
pub struct Shard {
    names: Vec<u8>,
    garbage: usize,
    /// By slot.
    pub entries: Vec<Entry>,
    free: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Shard {
    /// The id in a slot.
    pub fn name(&self, slot: usize) -> &[u8] {
        let entry = &self.entries[slot];
        &self.names[entry.offset as usize..entry.offset as usize + usize::from(entry.length)]
    }

    /// How many tasks it holds.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// How many bytes their names take.
    #[cfg(test)]
    pub fn name_bytes(&self) -> usize {
        self.names.len()
    }

    /// The slot of an id.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.find_hashed(name, self.hasher.hash_one(name))
    }

    fn find_hashed(&self, name: &[u8], hash: u64) -> Option<usize> {
        self.table
            .find(hash, |slot| self.name(*slot as usize) == name)
            .map(|slot| *slot as usize)
    }

    /// The slot of `name`, and whether it is new. None: the shard is full.
    pub fn insert(&mut self, name: &[u8]) -> Option<(usize, bool)> {
        let hash = self.hasher.hash_one(name);
        if let Some(slot) = self.find_hashed(name, hash) {
            return Some((slot, false));
        }
        let offset = u32::try_from(self.names.len()).ok()?;
        let entry = Entry {
            offset,
            length: name.len() as u8,
            place: Place::Ready,
            priority: NORMAL_PRIORITY,
            group: UNREAD,
        };
        let slot = match self.free.pop() {
            Some(slot) => slot as usize,
            None if self.entries.len() < MAX_SLOTS => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
            None => return None,
        };
        self.names.extend_from_slice(name);
        self.entries[slot] = entry;
        let (names, entries, hasher) = (&self.names, &self.entries, &self.hasher);
        self.table.insert_unique(hash, slot as u32, |slot| {
            let e = &entries[*slot as usize];
            let start = e.offset as usize;
            hasher.hash_one(&names[start..start + usize::from(e.length)])
        });
        Some((slot, true))
    }

    /// Frees a slot.
    pub fn remove(&mut self, slot: usize) {
        if self.entries[slot].place == Place::Free {
            return;
        }
        let hash = self.hasher.hash_one(self.name(slot));
        if let Ok(found) = self.table.find_entry(hash, |s| *s as usize == slot) {
            found.remove();
        }
        self.garbage += usize::from(self.entries[slot].length);
        self.entries[slot].place = Place::Free;
        self.free.push(slot as u32);
        if self.garbage > MAX_GARBAGE && self.garbage * 2 > self.names.len() {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let mut names = Vec::with_capacity(self.names.len() - self.garbage);
        for entry in self.entries.iter_mut().filter(|e| e.place != Place::Free) {
            let start = entry.offset as usize;
            entry.offset = names.len() as u32;
            names.extend_from_slice(&self.names[start..start + usize::from(entry.length)]);
        }
        self.names = names;
        self.garbage = 0;
    }

    /// Makes the shard hold exactly `names`. Returns the slots that are new.
    pub fn replace_with(&mut self, names: &Names) -> Vec<u32> {
        let cold = self.table.is_empty();
        let count = names.count();
        if cold {
            self.entries.reserve(count);
            self.names.reserve(names.total_length());
            let (entries, arena, hasher) = (&self.entries, &self.names, &self.hasher);
            self.table.reserve(count, |slot| {
                let e = &entries[*slot as usize];
                let start = e.offset as usize;
                hasher.hash_one(&arena[start..start + usize::from(e.length)])
            });
        }
        let mut seen = vec![false; if cold { 0 } else { self.entries.len() }];
        let mut fresh = Vec::with_capacity(if cold { count } else { 0 });
        for name in names.iter() {
            match self.insert(name) {
                Some((slot, true)) => {
                    fresh.push(slot as u32);
                    if let Some(mark) = seen.get_mut(slot) {
                        *mark = true;
                    }
                }
                Some((slot, false)) => {
                    if let Some(mark) = seen.get_mut(slot) {
                        *mark = true;
                    }
                }
                None => break,
            }
        }
        for (slot, seen) in seen.into_iter().enumerate() {
            if !seen {
                self.remove(slot);
            }
        }
        fresh
    }
}
