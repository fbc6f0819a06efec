//! Sorted runs: what of the inbox did not fit into memory, in files that have no name any more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustix::fs;

use super::rules::Rules;
use super::sorted::SortedFile;
use super::version::Version;
use super::winners::Source;
use crate::error::{Error, Result};
use crate::usv::file::Input;
use crate::usv::output::Output;
use crate::usv::LINE;

/// So many runs are merged into one: each holds a file open and a buffer.
const MERGED_AT_ONCE: usize = 32;
const BUFFER: usize = 64 * 1024;

/// The runs written so far, by how often they were merged.
pub struct Runs<'a> {
    rules: &'a Rules,
    levels: Vec<Vec<Input>>,
    count: usize,
    superseded: u64,
}

/// A run that is being written.
pub struct Run {
    output: Output,
}

impl Run {
    /// Appends a record.
    pub fn write(&mut self, record: &[u8]) -> Result<()> {
        let buffer = self.output.buffer();
        buffer.extend_from_slice(record);
        buffer.push(LINE);
        self.output.settle()
    }
}

impl<'a> Runs<'a> {
    /// None yet.
    pub fn new(rules: &'a Rules) -> Runs<'a> {
        Runs {
            rules,
            levels: Vec::new(),
            count: 0,
            superseded: 0,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Begins a run. Its name goes at once, so that a crash leaves nothing.
    pub fn begin(&mut self) -> Result<Run> {
        self.count += 1;
        let path = format!("{}/run-{}", self.rules.scratch, self.count);
        let output = Output::create(&path)?.without_hash();
        fs::unlink(&path).map_err(|errno| Error::io("delete", &path, errno))?;
        Ok(Run { output })
    }

    /// Ends a run.
    pub fn end(&mut self, run: Run) -> Result<()> {
        self.put(run, 0)
    }

    fn put(&mut self, run: Run, level: usize) -> Result<()> {
        let (written, fd) = run.output.finish()?;
        let name = format!("run in {}", self.rules.scratch);
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        self.levels[level].push(Input::of(fd, name, written.bytes));
        if self.levels[level].len() < MERGED_AT_ONCE {
            return Ok(());
        }
        let full = std::mem::take(&mut self.levels[level]);
        let merged = self.merge_into_one(full)?;
        self.put(merged, level + 1)
    }

    fn merge_into_one(&mut self, inputs: Vec<Input>) -> Result<Run> {
        let mut run = self.begin()?;
        let mut merged = Merged::start(inputs, self.rules)?;
        while let Some(version) = merged.current() {
            run.write(version.record)?;
            merged.advance()?;
        }
        self.superseded += merged.superseded;
        Ok(run)
    }

    /// All runs as one source. `superseded`: how many records lost within their run.
    pub fn merge(mut self, superseded: u64) -> Result<Merged> {
        let mut inputs: Vec<Input> = Vec::new();
        for level in 0..self.levels.len() {
            inputs.append(&mut self.levels[level]);
            if inputs.len() > MERGED_AT_ONCE {
                let run = self.merge_into_one(std::mem::take(&mut inputs))?;
                let (written, fd) = run.output.finish()?;
                inputs.push(Input::of(fd, "run".to_owned(), written.bytes));
            }
        }
        let mut merged = Merged::start(inputs, self.rules)?;
        merged.superseded += superseded + self.superseded;
        Ok(merged)
    }
}

/// Several runs as one source.
pub struct Merged {
    rules: Rules,
    files: Vec<SortedFile>,
    /// The keys at hand, with the files they are in.
    waiting: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// The file that has the winner of the least key.
    winner: Option<usize>,
    superseded: u64,
}

impl Merged {
    fn start(inputs: Vec<Input>, rules: &Rules) -> Result<Merged> {
        let mut files = Vec::with_capacity(inputs.len());
        let mut waiting = BinaryHeap::new();
        for input in inputs {
            let file = SortedFile::start(input, rules, BUFFER)?;
            if let Some(version) = file.current() {
                waiting.push(Reverse((version.key.to_vec(), files.len())));
            }
            files.push(file);
        }
        let mut merged = Merged {
            rules: rules.clone(),
            files,
            waiting,
            winner: None,
            superseded: 0,
        };
        merged.choose()?;
        Ok(merged)
    }

    /// How many records lost against another one.
    pub fn superseded(&self) -> u64 {
        self.superseded
    }

    /// Finds the winner of the least key; the files of the losers go on.
    fn choose(&mut self) -> Result<()> {
        let Some(Reverse((key, mut best))) = self.waiting.pop() else {
            self.winner = None;
            return Ok(());
        };
        while let Some(Reverse((next, _))) = self.waiting.peek() {
            if *next != key {
                break;
            }
            let Some(Reverse((_, rival))) = self.waiting.pop() else {
                break;
            };
            let loser = if self.beats(rival, best) {
                std::mem::replace(&mut best, rival)
            } else {
                rival
            };
            self.superseded += 1;
            self.step(loser)?;
        }
        self.winner = Some(best);
        Ok(())
    }

    fn beats(&self, rival: usize, best: usize) -> bool {
        match (self.files[rival].current(), self.files[best].current()) {
            (Some(rival), Some(best)) => rival.rank(&best).is_gt(),
            _ => false,
        }
    }

    fn step(&mut self, index: usize) -> Result<()> {
        self.files[index].advance(&self.rules)?;
        if let Some(version) = self.files[index].current() {
            self.waiting.push(Reverse((version.key.to_vec(), index)));
        }
        Ok(())
    }
}

impl Source for Merged {
    fn current(&self) -> Option<Version<'_>> {
        self.files[self.winner?].current()
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(index) = self.winner.take() {
            self.step(index)?;
        }
        self.choose()
    }
}
