//! The archive of completed tasks: `completed/archive/<day>.usv`, one record a task.
//!
//! Fields end with 0x1F, records with LF: id, finished_at, worker_id, fence, attempts, the
//! task.json and the result.json. JSON has neither byte except as white space, which becomes
//! a blank.

use std::io::{BufRead, BufReader};

use rustix::fs::{self, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::root::Root;
use crate::sys;
use crate::time;

const FIELD_END: u8 = 0x1f;
const RECORD_END: u8 = b'\n';
const FOLDER: &str = "completed/archive";

/// One archived task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The task's id.
    pub id: String,
    /// When it was completed.
    pub finished_ms: i64,
    /// Who completed it.
    pub worker_id: String,
    /// Under which fence.
    pub fence: u64,
    /// At which delivery.
    pub attempts: u32,
    /// The task.json.
    pub task: Vec<u8>,
    /// The result.json; empty if there is none.
    pub result: Vec<u8>,
}

impl Row {
    /// As one USV record.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut buffer = [0; 32];
        let finished = time::format(self.finished_ms, &mut buffer);
        let fence = self.fence.to_string();
        let attempts = self.attempts.to_string();
        let fields: [&[u8]; 7] = [
            self.id.as_bytes(),
            finished.as_bytes(),
            self.worker_id.as_bytes(),
            fence.as_bytes(),
            attempts.as_bytes(),
            &self.task,
            &self.result,
        ];
        let mut record = Vec::with_capacity(self.task.len() + self.result.len() + 128);
        for field in fields {
            record.extend(field.iter().map(|b| {
                if matches!(*b, 0x1c..=0x1f | b'\n' | b'\r') {
                    b' '
                } else {
                    *b
                }
            }));
            record.push(FIELD_END);
        }
        record.push(RECORD_END);
        record
    }

    /// Reads one USV record; None if it is cut short.
    pub fn parse(record: &[u8]) -> Option<Row> {
        let mut fields = record.split(|b| *b == FIELD_END);
        let mut text = || std::str::from_utf8(fields.next()?).ok().map(str::to_owned);
        let row = Row {
            id: text()?,
            finished_ms: time::parse(&text()?)?,
            worker_id: text()?,
            fence: text()?.parse().ok()?,
            attempts: text()?.parse().ok()?,
            task: text()?.into_bytes(),
            result: text()?.into_bytes(),
        };
        Some(row)
    }
}

/// Appends rows, durably, to the file of their day. The caller holds the queue's lock.
///
/// A torn last record (a crash while appending) is ended first, so that it spoils only itself.
pub fn append(root: &Root, rows: &[Row]) -> Result<()> {
    let failed = |errno| Error::io("write", FOLDER, errno);
    sys::ensure_dir(root.fd(), FOLDER).map_err(failed)?;
    let mut by_day: std::collections::BTreeMap<String, Vec<u8>> = Default::default();
    for row in rows {
        let mut buffer = [0; 32];
        let day = time::format(row.finished_ms, &mut buffer)[..10].to_owned();
        by_day.entry(day).or_default().extend(row.to_bytes());
    }
    for (day, bytes) in by_day {
        let path = format!("{FOLDER}/{day}.usv");
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(root.fd(), &path, flags, sys::FILE_MODE).map_err(failed)?;
        let size = fs::fstat(&file).map_err(failed)?.st_size;
        if size > 0 {
            let mut last = [0u8; 1];
            rustix::io::pread(&file, &mut last[..], size as u64 - 1).map_err(failed)?;
            if last[0] != RECORD_END {
                sys::write_all(&file, &[RECORD_END]).map_err(failed)?;
            }
        }
        sys::write_all(&file, &bytes).map_err(failed)?;
        sys::sync(&file).map_err(failed)?;
    }
    let dir = sys::open_dir(root.fd(), FOLDER).map_err(failed)?;
    sys::sync(&dir).map_err(failed)
}

/// The days there are, the latest first.
fn days(root: &Root) -> Result<Vec<String>> {
    let failed = |errno| Error::io("read", FOLDER, errno);
    let dir = match sys::open_dir(root.fd(), FOLDER) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(failed(errno)),
    };
    let mut names = Vec::new();
    sys::each_entry(&dir, |name, _| {
        if name.ends_with(b".usv") {
            names.push(format!("{FOLDER}/{}", String::from_utf8_lossy(name)));
        }
    })
    .map_err(failed)?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// Finds an archived task, reading the archive through.
pub fn find(root: &Root, id: &str) -> Result<Option<Row>> {
    let mut prefix = id.as_bytes().to_vec();
    prefix.push(FIELD_END);
    let mut found = None;
    each_record(root, |record| {
        if record.starts_with(&prefix) {
            found = Row::parse(record);
        }
        found.is_none()
    })?;
    Ok(found)
}

/// How many tasks are archived.
pub fn count(root: &Root) -> Result<u64> {
    let mut count = 0;
    each_record(root, |_| {
        count += 1;
        true
    })?;
    Ok(count)
}

/// Calls `visit` for every record until it returns false.
fn each_record(root: &Root, mut visit: impl FnMut(&[u8]) -> bool) -> Result<()> {
    for path in days(root)? {
        let failed = |errno| Error::io("read", &path, errno);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(root.fd(), &path, flags, fs::Mode::empty()).map_err(failed)?;
        let mut reader = BufReader::with_capacity(256 * 1024, std::fs::File::from(file));
        let mut record = Vec::new();
        loop {
            record.clear();
            let read = reader.read_until(RECORD_END, &mut record);
            let read = read.map_err(|e| failed(Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
            if read == 0 {
                break;
            }
            if record.last() == Some(&RECORD_END) && !visit(&record[..record.len() - 1]) {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_the_round_trip() {
        let row = Row {
            id: "a".into(),
            finished_ms: 1_000,
            worker_id: "w".into(),
            fence: 7,
            attempts: 2,
            task: br#"{"x":1}"#.to_vec(),
            result: Vec::new(),
        };
        let bytes = row.to_bytes();
        assert_eq!(Row::parse(&bytes[..bytes.len() - 1]), Some(row));
    }
}
