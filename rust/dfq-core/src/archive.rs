//! The archive of completed tasks: `completed/archive/<day>.usv`, one record a task.
//!
//! [USV](crate::usv): id, finished_at, worker_id, fence, attempts, the task.json and the
//! result.json. Records of the first version have a 0x1F after the last field, too, and are read.

use rustix::fs::{self, OFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::root::Root;
use crate::sys;
use crate::time;
use crate::usv::escape::unescape;
use crate::usv::fields::Fields;
use crate::usv::file::Input;
use crate::usv::framer::{Ends, Event, Framer};
use crate::usv::writer::record_into;
use crate::usv::{FIELD, LINE};

const FIELDS: usize = 7;
/// Ends a record that a crash tore: more fields than there are say that it is none.
const TORN: [u8; FIELDS + 2] = [FIELD, FIELD, FIELD, FIELD, FIELD, FIELD, FIELD, FIELD, LINE];

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
        record_into(&mut record, fields);
        record
    }

    /// Reads one USV record, without its end; None if it is no whole one.
    pub fn parse(record: &[u8]) -> Option<Row> {
        let fields = whole(record)?;
        let text = |index| {
            let field = unescape(&record[fields.range(index)]).into_owned();
            String::from_utf8(field).ok()
        };
        let row = Row {
            id: text(0)?,
            finished_ms: time::parse(&text(1)?)?,
            worker_id: text(2)?,
            fence: text(3)?.parse().ok()?,
            attempts: text(4)?.parse().ok()?,
            task: text(5)?.into_bytes(),
            result: text(6)?.into_bytes(),
        };
        Some(row)
    }

    /// Whether `other` tells the same end of the same task. White space may differ: the first
    /// version made it blanks.
    fn tells_the_same(&self, other: &Row) -> bool {
        let blanks = |json: &[u8]| -> Vec<u8> {
            let blank = |byte: &u8| {
                if matches!(byte, b'\n' | b'\r') {
                    b' '
                } else {
                    *byte
                }
            };
            json.iter().map(blank).collect()
        };
        self.fence == other.fence && blanks(&self.result) == blanks(&other.result)
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
            if last[0] != LINE {
                sys::write_all(&file, &TORN).map_err(failed)?;
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
    prefix.push(FIELD);
    for path in days(root)? {
        // The last one of a day: one before it that a crash tore may look whole.
        let mut found = None;
        each_record_of(root, &path, &mut |record| {
            if record.starts_with(&prefix) {
                found = Row::parse(record).or_else(|| found.take());
            }
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The fields of a record, if it is whole: one torn by a crash is not.
fn whole(record: &[u8]) -> Option<Fields> {
    let mut fields = Fields::default();
    let sound = fields.find(record);
    if fields.count() == FIELDS + 1 && fields.ends_with_separator() {
        fields.drop_last();
    }
    (sound && fields.count() == FIELDS).then_some(fields)
}

fn is_whole(record: &[u8]) -> bool {
    whole(record).is_some()
}

fn id_of(record: &[u8]) -> &[u8] {
    record.split(|b| *b == FIELD).next().unwrap_or_default()
}

/// How many tasks are archived, those in `elsewhere` left out.
pub fn count(root: &Root, elsewhere: &HashSet<Vec<u8>>) -> Result<u64> {
    let mut count = 0;
    each_record(root, |record| {
        count += u64::from(is_whole(record) && !elsewhere.contains(id_of(record)));
    })?;
    Ok(count)
}

/// Those of `rows` that a crash left in the archive already.
pub fn already_there(root: &Root, rows: &[Row]) -> Result<HashSet<String>> {
    let wanted: HashMap<&[u8], &Row> = rows.iter().map(|row| (row.id.as_bytes(), row)).collect();
    let mut found = HashSet::new();
    each_record(root, |record| {
        if let Some(row) = wanted.get(id_of(record)) {
            if Row::parse(record).is_some_and(|known| known.tells_the_same(row)) {
                found.insert(row.id.clone());
            }
        }
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
        })?;
        fs::unlinkat(root.fd(), &path, fs::AtFlags::empty())
            .map_err(|errno| Error::io("delete", &path, errno))?;
    }
    Ok(removed)
}

/// Calls `visit` with every record.
fn each_record(root: &Root, mut visit: impl FnMut(&[u8])) -> Result<()> {
    for path in days(root)? {
        each_record_of(root, &path, &mut visit)?;
    }
    Ok(())
}

fn each_record_of(root: &Root, path: &str, visit: &mut impl FnMut(&[u8])) -> Result<()> {
    let failed = |errno| Error::io("read", path, errno);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(root.fd(), path, flags, fs::Mode::empty()).map_err(failed)?;
    let size = fs::fstat(&file).map_err(failed)?.st_size as u64;
    let mut input = Input::of(file, path.to_owned(), size);
    // A record has a task and a result of whatever size the queue allows.
    let mut framer = Framer::new(Ends::LineFeed, usize::MAX);
    loop {
        match framer.next() {
            Event::More => {
                let count = input.read(framer.room())?;
                framer.fill(count);
            }
            // The end of the last one may not be written yet, or never.
            Event::Record(range) if !framer.unended() => visit(framer.bytes(&range)),
            Event::Record(_) | Event::LongPart(_) | Event::LongEnd(_) => {}
            Event::End => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(task: &[u8], result: &[u8]) -> Row {
        Row {
            id: "a".into(),
            finished_ms: 1_000,
            worker_id: "w".into(),
            fence: 7,
            attempts: 2,
            task: task.to_vec(),
            result: result.to_vec(),
        }
    }

    #[test]
    fn a_row_survives_the_round_trip() {
        for row in [
            row(br#"{"x":1}"#, b""),
            row(b"{\n\t\"x\": 1\r\n}\n", b"\x1f\x1e\x1b"),
        ] {
            let bytes = row.to_bytes();
            assert_eq!(bytes.iter().filter(|byte| **byte == LINE).count(), 1);
            assert_eq!(Row::parse(&bytes[..bytes.len() - 1]), Some(row));
        }
    }

    #[test]
    fn a_row_of_the_first_version_is_read() {
        for result in [&b""[..], b"true"] {
            let row = row(br#"{"x": 1}"#, result);
            let mut bytes = row.to_bytes();
            bytes.pop();
            bytes.push(FIELD);
            assert_eq!(Row::parse(&bytes), Some(row));
        }
    }

    #[test]
    fn a_torn_row_is_none_once_it_is_ended() {
        let bytes = row(br#"{"x":1}"#, br#"{"y":2}"#).to_bytes();
        for cut in 0..bytes.len() - 1 {
            let ended = [&bytes[..cut], &TORN[..FIELDS + 1]].concat();
            assert_eq!(Row::parse(&ended), None, "{cut}");
        }
    }
}
