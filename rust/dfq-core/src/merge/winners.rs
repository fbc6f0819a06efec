//! The records of the inbox, held until all are read; spilled in sorted runs if they are many.

use std::cmp::Ordering;

use super::candidate::Candidate;
use super::rules::Rules;
use super::runs::{Merged, Runs};
use super::version::Version;
use crate::error::Result;

/// Where a record stands in the arena, and what decides about it.
struct Entry {
    offset: usize,
    length: u32,
    key_start: u32,
    key_length: u32,
    tombstone: bool,
    updated_ns: i128,
}

/// Records of the inbox.
pub struct Winners<'a> {
    rules: &'a Rules,
    arena: Vec<u8>,
    entries: Vec<Entry>,
    runs: Runs<'a>,
    superseded: u64,
}

/// Records in the order of their keys, each key once.
pub trait Source {
    /// The record at hand.
    fn current(&self) -> Option<Version<'_>>;
    /// Goes to the next one.
    fn advance(&mut self) -> Result<()>;
}

/// The winners, wherever they are.
pub enum Sorted {
    /// All in memory.
    Held(Held),
    /// In runs.
    Spilled(Box<Merged>),
}

/// Winners in memory.
pub struct Held {
    arena: Vec<u8>,
    entries: Vec<Entry>,
    at: usize,
    superseded: u64,
}

impl<'a> Winners<'a> {
    /// None yet.
    pub fn new(rules: &'a Rules) -> Winners<'a> {
        Winners {
            rules,
            arena: Vec::new(),
            entries: Vec::new(),
            runs: Runs::new(rules),
            superseded: 0,
        }
    }

    /// Where canonical records are put before they are pushed.
    pub fn arena(&mut self) -> &mut Vec<u8> {
        &mut self.arena
    }

    /// Takes in a record that was put into the arena.
    pub fn push(&mut self, candidate: Candidate) -> Result<()> {
        self.entries.push(Entry {
            offset: candidate.record.start,
            length: candidate.record.len() as u32,
            key_start: candidate.key.start as u32,
            key_length: candidate.key.len() as u32,
            tombstone: candidate.tombstone,
            updated_ns: candidate.updated_ns,
        });
        let held = self.arena.len() + self.entries.len() * std::mem::size_of::<Entry>();
        if held > self.rules.memory_bytes {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.superseded += sort(&self.arena, &mut self.entries);
        let mut run = self.runs.begin()?;
        for entry in &self.entries {
            run.write(version(&self.arena, entry).record)?;
        }
        self.runs.end(run)?;
        self.entries.clear();
        self.arena.clear();
        Ok(())
    }

    /// All in order.
    pub fn finish(mut self) -> Result<Sorted> {
        if self.runs.is_empty() {
            let superseded = sort(&self.arena, &mut self.entries);
            return Ok(Sorted::Held(Held {
                arena: self.arena,
                entries: self.entries,
                at: 0,
                superseded,
            }));
        }
        self.spill()?;
        let Winners {
            runs, superseded, ..
        } = self;
        Ok(Sorted::Spilled(Box::new(runs.merge(superseded)?)))
    }
}

fn version<'a>(arena: &'a [u8], entry: &Entry) -> Version<'a> {
    let record = &arena[entry.offset..entry.offset + entry.length as usize];
    let key = entry.key_start as usize;
    Version {
        record,
        key: &record[key..key + entry.key_length as usize],
        updated_ns: entry.updated_ns,
        tombstone: entry.tombstone,
    }
}

/// Sorts by key and leaves only the winner of each; returns how many it left out.
fn sort(arena: &[u8], entries: &mut Vec<Entry>) -> u64 {
    entries.sort_unstable_by(|left, right| {
        let (left, right) = (version(arena, left), version(arena, right));
        // The winner first: it is the one that stays.
        left.key
            .cmp(right.key)
            .then_with(|| match left.rank(&right) {
                Ordering::Greater => Ordering::Less,
                Ordering::Less => Ordering::Greater,
                Ordering::Equal => Ordering::Equal,
            })
    });
    let before = entries.len();
    entries.dedup_by(|later, first| version(arena, later).key == version(arena, first).key);
    (before - entries.len()) as u64
}

impl Sorted {
    /// How many records lost against another of the inbox, as far as they were read.
    pub fn superseded(&self) -> u64 {
        match self {
            Sorted::Held(held) => held.superseded,
            Sorted::Spilled(merged) => merged.superseded(),
        }
    }
}

impl Source for Held {
    fn current(&self) -> Option<Version<'_>> {
        self.entries
            .get(self.at)
            .map(|entry| version(&self.arena, entry))
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }
}

impl Source for Sorted {
    fn current(&self) -> Option<Version<'_>> {
        match self {
            Sorted::Held(held) => held.current(),
            Sorted::Spilled(merged) => merged.current(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Sorted::Held(held) => held.advance(),
            Sorted::Spilled(merged) => merged.advance(),
        }
    }
}
