//! The file of rejects: the raw bytes of what was not merged, a line feed after each.

use super::report::{Kind, Reject};
use crate::error::Result;
use crate::usv::output::Output;
use crate::usv::LINE;

/// So many are told one by one. Of what follows, neighbours with one reason are told as one.
const TOLD_APART: usize = 10_000;

/// What was rejected so far.
pub struct Rejects<'a> {
    path: &'a str,
    file: Option<Output>,
    /// Where the reject that is being copied begins.
    begin: u64,
    told: Vec<Reject>,
}

impl<'a> Rejects<'a> {
    /// Rejects that will be copied to `path`.
    pub fn new(path: &'a str) -> Rejects<'a> {
        Rejects {
            path,
            file: None,
            begin: 0,
            told: Vec::new(),
        }
    }

    /// Copies a part of a reject.
    pub fn part(&mut self, bytes: &[u8]) -> Result<()> {
        if self.file.is_none() {
            self.file = Some(Output::create(self.path)?);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write(bytes))
    }

    /// Copies the last part of a reject, and remembers it.
    pub fn reject(
        &mut self,
        name: &str,
        record: u64,
        kind: Kind,
        message: String,
        last: &[u8],
    ) -> Result<()> {
        self.part(last)?;
        let end = self.file.as_ref().map_or(0, Output::position);
        self.part(&[LINE])?;
        let (offset, length) = (self.begin, end - self.begin);
        self.begin = end + 1;
        if self.told.len() >= TOLD_APART {
            if let Some(before) = self.told.last_mut() {
                if before.name == name && before.kind == kind {
                    before.length = end - before.offset;
                    before.message = format!("{message}; records {} to {record}", before.record);
                    return Ok(());
                }
            }
        }
        self.tell(name, record, kind, message, (offset, length));
        Ok(())
    }

    /// Remembers that a whole entry could not be read.
    pub fn whole(&mut self, name: &str, kind: Kind, message: String) {
        self.tell(name, 0, kind, message, (self.begin, 0));
    }

    fn tell(&mut self, name: &str, record: u64, kind: Kind, message: String, at: (u64, u64)) {
        self.told.push(Reject {
            name: name.to_owned(),
            record,
            kind,
            message,
            offset: at.0,
            length: at.1,
        });
    }

    /// Ends the file; returns what was rejected.
    pub fn finish(self) -> Result<Vec<Reject>> {
        if let Some(file) = self.file {
            file.finish()?;
        }
        Ok(self.told)
    }
}
