//! Looks a file through, without making rows of it.

use memchr::memchr2_iter;

use super::escape::unescape;
use super::fields::Fields;
use super::file::Input;
use super::framer::{Ends, Event, Framer};
use super::visible;
use super::{LINE, RECORD};
use crate::error::Result;

/// What was found in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// How many records it has, bad ones included.
    pub records: u64,
    /// Its size.
    pub bytes: u64,
    /// The least number of fields in a record.
    pub least_fields: usize,
    /// The greatest.
    pub most_fields: usize,
    /// How many records have fewer fields than there are columns.
    pub short: u64,
    /// How many can't be read.
    pub bad: u64,
    /// The first of those: number and reason.
    pub problems: Vec<(u64, String)>,
    /// Whether the last record came without its end.
    pub unended: bool,
}

const PROBLEMS_KEPT: usize = 100;

impl Found {
    fn complain(&mut self, problem: String) {
        self.bad += 1;
        if self.problems.len() < PROBLEMS_KEPT {
            self.problems.push((self.records, problem));
        }
    }

    fn fields(&mut self, mut count: usize, ends_with_separator: bool, columns: Option<usize>) {
        if columns.is_some_and(|columns| count == columns + 1 && ends_with_separator) {
            count -= 1;
        }
        let first = self.most_fields == 0;
        self.least_fields = if first {
            count
        } else {
            self.least_fields.min(count)
        };
        self.most_fields = self.most_fields.max(count);
        if let Some(columns) = columns {
            self.short += u64::from(count < columns);
            if count > columns {
                self.complain(format!("{count} fields where there are {columns} columns"));
            }
        }
    }
}

/// Checks every record of a file: UTF-8, length, and, if told, the number of columns.
pub fn check(path: &str, columns: Option<usize>, ends: Ends, limit: usize) -> Result<Found> {
    let mut input = Input::open(path).map_err(|refusal| refusal.into_error(path))?;
    let mut framer = Framer::new(ends, limit);
    let mut fields = Fields::default();
    let mut found = Found {
        bytes: input.size(),
        ..Found::default()
    };
    loop {
        match framer.next() {
            Event::Record(range) => {
                found.records += 1;
                if !framer.is_text(&range) {
                    found.complain("not UTF-8".to_owned());
                    continue;
                }
                let record = framer.bytes(&range);
                if ends == Ends::Visible {
                    let row = visible::fields(&String::from_utf8_lossy(record));
                    let empty = row.last().is_some_and(String::is_empty);
                    found.fields(row.len(), row.len() > 1 && empty, columns);
                } else {
                    fields.find(record);
                    found.fields(fields.count(), fields.ends_with_separator(), columns);
                }
            }
            Event::LongPart(_) => {}
            Event::LongEnd(_) => {
                found.records += 1;
                found.complain(format!("longer than {limit} bytes"));
            }
            Event::More => {
                let count = input.read(framer.room())?;
                framer.fill(count);
            }
            Event::End => break,
        }
    }
    found.unended = framer.unended();
    Ok(found)
}

/// Counts the records of a file, of whatever length and content.
pub fn count(path: &str, ends: Ends) -> Result<u64> {
    if ends == Ends::Visible {
        return check(path, None, ends, super::MAX_RECORD_BYTES).map(|found| found.records);
    }
    let mut input = Input::open(path).map_err(|refusal| refusal.into_error(path))?;
    let mut buffer = vec![0; 256 * 1024];
    let mut records = 0;
    let mut empty = true;
    loop {
        let read = input.read(&mut buffer)?;
        if read == 0 {
            return Ok(records + u64::from(!empty));
        }
        let mut start = 0;
        for at in memchr2_iter(LINE, RECORD, &buffer[..read]) {
            records += u64::from(!empty || at > start);
            empty = true;
            start = at + 1;
        }
        empty &= start == read;
    }
}

/// The rows of a small body; the error names the record that can't be read.
pub fn split(body: &[u8], ends: Ends) -> std::result::Result<Vec<Vec<String>>, String> {
    let mut rows = Vec::new();
    let mut fields = Fields::default();
    let mut framer = Framer::with_chunk(ends, usize::MAX, body.len());
    let mut rest = body;
    loop {
        match framer.next() {
            Event::Record(range) => {
                let record = framer.bytes(&range);
                let Ok(text) = std::str::from_utf8(record) else {
                    return Err(format!("record {} is not UTF-8", rows.len() + 1));
                };
                rows.push(if ends == Ends::Visible {
                    visible::fields(text)
                } else {
                    fields.find(record);
                    let field = |index| unescape(&record[fields.range(index)]).into_owned();
                    let text = |field: Vec<u8>| String::from_utf8_lossy(&field).into_owned();
                    (0..fields.count()).map(field).map(text).collect()
                });
            }
            Event::LongPart(_) | Event::LongEnd(_) => unreachable!("there is no limit"),
            Event::More if rest.is_empty() => framer.fill(0),
            Event::More => rest = framer.feed(rest),
            Event::End => return Ok(rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8]) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.usv");
        std::fs::write(&path, content).unwrap();
        let path = path.to_str().unwrap().to_owned();
        (folder, path)
    }

    #[test]
    fn records_are_counted_as_they_are_read() {
        for content in [
            &b""[..],
            b"\n\n",
            b"a",
            b"a\n",
            b"a\x1e\nb\x1e\n",
            b"\na\n\nb",
            b"\x1f\n",
        ] {
            let (_folder, path) = file(content);
            let counted = count(&path, Ends::Any).unwrap();
            assert_eq!(counted, split(content, Ends::Any).unwrap().len() as u64);
            assert_eq!(counted, check(&path, None, Ends::Any, 100).unwrap().records);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_record() {
        let (_folder, path) = file(b"a\x1fb\na\na\x1fb\x1fc\n\xff\na\x1fb\x1f\nlong long long");
        let found = check(&path, Some(2), Ends::Any, 10).unwrap();
        assert_eq!((found.records, found.short, found.bad), (6, 1, 3));
        let numbers: Vec<u64> = found.problems.iter().map(|problem| problem.0).collect();
        assert_eq!(numbers, [3, 4, 6]);
        assert!(found.unended);
    }
}
