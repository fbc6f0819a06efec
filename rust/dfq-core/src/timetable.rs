//! When to look at which entry again. Entries that moved on are not withdrawn: they are dropped
//! when their time comes, or when they have become half of all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::shard::Ref;

/// Fewer than this are not worth a tidying.
const LEAST: usize = 1024;

/// Entries by time.
#[derive(Default)]
pub struct Timetable {
    heap: BinaryHeap<Reverse<(i64, Ref)>>,
    tidied: usize,
}

impl Timetable {
    /// Notes an entry. `valid` tells of one noted earlier whether it still belongs here.
    pub fn add(&mut self, at: i64, entry: Ref, valid: impl Fn(Ref) -> bool) {
        if self.heap.len() >= LEAST.max(self.tidied * 2) {
            self.tidy(valid);
        }
        self.heap.push(Reverse((at, entry)));
    }

    /// Keeps what is valid, once: slots are used again, and of two times for one slot the
    /// earlier is safe.
    fn tidy(&mut self, valid: impl Fn(Ref) -> bool) {
        let mut kept = std::mem::take(&mut self.heap).into_vec();
        kept.retain(|Reverse((_, entry))| valid(*entry));
        kept.sort_unstable_by_key(|Reverse((at, entry))| (*entry, *at));
        kept.dedup_by_key(|Reverse((_, entry))| *entry);
        self.tidied = kept.len();
        self.heap = kept.into();
    }

    /// The earliest time.
    pub fn next(&self) -> Option<i64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes an entry whose time has come.
    pub fn pop_due(&mut self, now: i64) -> Option<Ref> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, entry))| entry)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.heap.len()
    }
}
