//! The archive of completed tasks: `completed/archive/<day>.usv`, one record a task.
//!
//! Fields end with 0x1F, records with LF: id, finished_at, worker_id, fence, attempts, the
//! task.json and the result.json. JSON has neither byte except as white space, which becomes
//! a blank.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};

use rustix::fs::{self, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::root::Root;
use crate::sys;
use crate::time;

const FIELD_END: u8 = 0x1f;
const RECORD_END: u8 = b'\n';
const FIELDS: usize = 7;

/// Where the archive is. In the flat layout a task may be called "archive"; none starts with a dot.
fn folder(root: &Root) -> &'static str {
    match root.layout() {
        Layout::Sharded => "completed/archive",
        Layout::Flat => "completed/.archive",
    }
}

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
    let folder = folder(root);
    let failed = |errno| Error::io("write", folder, errno);
    sys::ensure_dir(root.fd(), folder).map_err(failed)?;
    let mut by_day: std::collections::BTreeMap<String, Vec<u8>> = Default::default();
    for row in rows {
        let mut buffer = [0; 32];
        let day = time::format(row.finished_ms, &mut buffer)[..10].to_owned();
        by_day.entry(day).or_default().extend(row.to_bytes());
    }
    for (day, bytes) in by_day {
        let path = format!("{folder}/{day}.usv");
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
    // Both, whoever made them: a sweeper that was killed may have made one and synced neither.
    for path in [folder, "completed"] {
        let dir = sys::open_dir(root.fd(), path).map_err(failed)?;
        sys::sync(&dir).map_err(failed)?;
    }
    Ok(())
}

/// The days there are, the latest first.
fn days(root: &Root) -> Result<Vec<String>> {
    let folder = folder(root);
    let failed = |errno| Error::io("read", folder, errno);
    let dir = match sys::open_dir(root.fd(), folder) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(failed(errno)),
    };
    let mut names = Vec::new();
    sys::each_entry(&dir, |name, _| {
        if name.ends_with(b".usv") {
            names.push(format!("{folder}/{}", String::from_utf8_lossy(name)));
        }
    })
    .map_err(failed)?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// Whether nothing was archived yet.
pub fn is_empty(root: &Root) -> Result<bool> {
    Ok(days(root)?.is_empty())
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

/// Whether a record is whole: one torn by a crash is not.
fn is_whole(record: &[u8]) -> bool {
    record.iter().filter(|b| **b == FIELD_END).count() == FIELDS
}

fn id_of(record: &[u8]) -> &[u8] {
    record.split(|b| *b == FIELD_END).next().unwrap_or_default()
}

/// How many tasks are archived, those in `elsewhere` left out.
pub fn count(root: &Root, elsewhere: &HashSet<Vec<u8>>) -> Result<u64> {
    let mut count = 0;
    each_record(root, |record| {
        count += u64::from(is_whole(record) && !elsewhere.contains(id_of(record)));
        true
    })?;
    Ok(count)
}

/// Those of `rows` that a crash left in the archive already.
pub fn already_there(root: &Root, rows: &[Row]) -> Result<HashSet<String>> {
    let wanted: HashMap<&[u8], &Row> = rows.iter().map(|row| (row.id.as_bytes(), row)).collect();
    let mut found = HashSet::new();
    each_record(root, |record| {
        if let Some(row) = wanted.get(id_of(record)) {
            if Row::parse(record).is_some_and(|known| known.fence == row.fence) {
                found.insert(row.id.clone());
            }
        }
        true
    })?;
    Ok(found)
}

/// Deletes the days that ended before `before_ms`, or all; returns how many tasks they held.
pub fn purge(root: &Root, before_ms: Option<i64>) -> Result<u64> {
    let mut buffer = [0; 32];
    let limit = before_ms.map(|ms| time::format(ms, &mut buffer)[..10].to_owned());
    let mut removed = 0;
    for path in days(root)? {
        let day = path
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".usv");
        if limit.as_deref().is_some_and(|limit| day >= limit) {
            continue;
        }
        each_record_of(root, &path, &mut |record| {
            removed += u64::from(is_whole(record));
            true
        })?;
        fs::unlinkat(root.fd(), &path, fs::AtFlags::empty())
            .map_err(|errno| Error::io("delete", &path, errno))?;
    }
    Ok(removed)
}

/// Calls `visit` for every record until it returns false.
fn each_record(root: &Root, mut visit: impl FnMut(&[u8]) -> bool) -> Result<()> {
    for path in days(root)? {
        if !each_record_of(root, &path, &mut visit)? {
            break;
        }
    }
    Ok(())
}

fn each_record_of(root: &Root, path: &str, visit: &mut impl FnMut(&[u8]) -> bool) -> Result<bool> {
    let failed = |errno| Error::io("read", path, errno);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(root.fd(), path, flags, fs::Mode::empty()).map_err(failed)?;
    let mut reader = BufReader::with_capacity(256 * 1024, std::fs::File::from(file));
    let mut record = Vec::new();
    loop {
        record.clear();
        let read = reader.read_until(RECORD_END, &mut record);
        if read.map_err(|e| failed(Errno::from_io_error(&e).unwrap_or(Errno::IO)))? == 0 {
            return Ok(true);
        }
        if record.last() == Some(&RECORD_END) && !visit(&record[..record.len() - 1]) {
            return Ok(false);
        }
    }
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
