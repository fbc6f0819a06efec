//! The file of rejects: the raw bytes of what was not merged, a line feed after each.
//!
//! Whatever comes in, what is remembered of it is bounded: past so many rejects, those of one entry
//! are told as one. What only came to the wrong place is told apart from the rest even so, because
//! it is moved and not set aside. Told as one is what stands in one piece, so it is collected in a
//! file of its own, which ends up behind the rest.

use std::os::fd::OwnedFd;

use rustix::fs;

use super::report::{Kind, Reject};
use crate::error::{Error, Result};
use crate::usv::file::Input;
use crate::usv::output::Output;
use crate::usv::LINE;

/// So many are told one by one.
const TOLD_APART: usize = 10_000;
/// What is moved is loaded: a longer piece is not made of it.
const MOVED_BYTES: u64 = 1 << 20;

/// What was rejected so far.
pub struct Rejects<'a> {
    path: &'a str,
    told: Vec<Told>,
    damaged: Lot,
    misplaced: Lot,
}

struct Told {
    reject: Reject,
    /// The last record, if they are several.
    last: u64,
    /// Whether all have the kind and the message of the first.
    alike: bool,
}

/// Rejects whose bytes stand one after the other.
#[derive(Default)]
struct Lot {
    file: Option<Output>,
    /// Where the reject that is being copied begins.
    begin: u64,
    /// The latest one, among all that are told.
    latest: Option<usize>,
}

impl Lot {
    fn write(&mut self, bytes: &[u8], create: impl FnOnce() -> Result<Output>) -> Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => create()?.without_hash(),
        };
        self.file.insert(file).write(bytes)
    }

    fn position(&self) -> u64 {
        self.file.as_ref().map_or(0, Output::position)
    }
}

impl<'a> Rejects<'a> {
    /// Rejects that will be copied to `path`.
    pub fn new(path: &'a str) -> Rejects<'a> {
        Rejects {
            path,
            told: Vec::new(),
            damaged: Lot::default(),
            misplaced: Lot::default(),
        }
    }

    /// Copies a part of a reject that is too long to be held.
    pub fn part(&mut self, bytes: &[u8]) -> Result<()> {
        self.damaged.write(bytes, || Output::create(self.path))
    }

    /// Copies a reject, or the last part of one, and remembers it.
    pub fn reject(
        &mut self,
        name: &str,
        record: u64,
        kind: Kind,
        message: String,
        last: &[u8],
    ) -> Result<()> {
        let lot = if kind == Kind::Misplaced {
            self.misplaced.write(last, || create_unnamed(self.path))?;
            &mut self.misplaced
        } else {
            self.part(last)?;
            &mut self.damaged
        };
        let end = lot.position();
        lot.write(&[LINE], || unreachable!("it is there by now"))?;
        let begin = std::mem::replace(&mut lot.begin, end + 1);
        if self.told.len() >= TOLD_APART {
            let before = lot.latest.map(|at| &mut self.told[at]);
            if before.is_some_and(|before| before.goes_on(name, record, kind, &message, end)) {
                return Ok(());
            }
        }
        lot.latest = Some(self.told.len());
        self.tell(name, record, kind, message, (begin, end - begin));
        Ok(())
    }

    /// Remembers that a whole entry could not be read.
    pub fn whole(&mut self, name: &str, kind: Kind, message: String) {
        self.tell(name, 0, kind, message, (self.damaged.begin, 0));
    }

    fn tell(&mut self, name: &str, record: u64, kind: Kind, message: String, at: (u64, u64)) {
        self.told.push(Told {
            reject: Reject {
                name: name.to_owned(),
                record,
                kind,
                message,
                offset: at.0,
                length: at.1,
            },
            last: record,
            alike: true,
        });
    }

    /// Ends the file; returns what was rejected.
    pub fn finish(mut self) -> Result<Vec<Reject>> {
        let behind = self.damaged.position();
        if let Some(misplaced) = self.misplaced.file.take() {
            let (written, fd) = misplaced.finish()?;
            self.append(fd, written.bytes)?;
        }
        if let Some(file) = self.damaged.file {
            file.finish()?;
        }
        let told = self.told.into_iter().map(|told| told.finish(behind));
        Ok(told.collect())
    }

    fn append(&mut self, fd: OwnedFd, size: u64) -> Result<()> {
        let mut input = Input::of(fd, self.path.to_owned(), size);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match input.read(&mut buffer)? {
                0 => return Ok(()),
                count => self.part(&buffer[..count])?,
            }
        }
    }
}

impl Told {
    /// Takes the reject that ends at `end` in with this one, which stands before it, if it may.
    fn goes_on(&mut self, name: &str, record: u64, kind: Kind, message: &str, end: u64) -> bool {
        let known = &mut self.reject;
        let length = end - known.offset;
        if known.name != name || (kind == Kind::Misplaced && length > MOVED_BYTES) {
            return false;
        }
        if known.kind != kind {
            self.alike = false;
            // Who sees this one doubts the schema, and must not miss it.
            if kind == Kind::TooManyFields {
                known.kind = kind;
                known.message = message.to_owned();
            }
        }
        known.length = length;
        self.last = record;
        true
    }

    /// `behind`: where what was misplaced stands in the end.
    fn finish(self, behind: u64) -> Reject {
        let mut reject = self.reject;
        if reject.kind == Kind::Misplaced {
            reject.offset += behind;
        }
        if self.last != reject.record {
            let others = if self.alike {
                ""
            } else {
                ", some for another reason"
            };
            let range = format!("; records {} to {}{others}", reject.record, self.last);
            reject.message += &range;
        }
        reject
    }
}

/// A file beside `path` whose name goes at once, so that a crash leaves nothing.
fn create_unnamed(path: &str) -> Result<Output> {
    let path = format!("{path}-misplaced");
    let output = Output::create(&path)?;
    fs::unlink(&path).map_err(|errno| Error::io("delete", &path, errno))?;
    Ok(output)
}
