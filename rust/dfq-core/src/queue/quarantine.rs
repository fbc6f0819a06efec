//! Setting damaged things aside, so that their neighbours run on.
//!
//! `quarantine/<nonce>/` holds the thing under its own name, and `reason.json` beside it. The
//! reason is written first: what is set aside always says why.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs;
use rustix::io::Errno;

use super::FileQueue;
use crate::error::{Error, Result};
use crate::root::Area;
use crate::sys;

impl FileQueue {
    /// Moves what stands at `path` (below the root) into quarantine/.
    pub fn quarantine(&self, path: &[u8], reason: &str) -> Result<()> {
        let cell = self.make_cell(&String::from_utf8_lossy(path), reason)?;
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        let mut target = format!("{cell}/").into_bytes();
        target.extend_from_slice(name);
        let (Ok(from), Ok(to)) = (CString::new(path), CString::new(target)) else {
            return Ok(());
        };
        match fs::renameat(self.root.fd(), &from, self.root.fd(), &to) {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => {
                // Somebody else was quicker; the empty cell is not needed.
                self.drop_cell(&cell);
                Ok(())
            }
            Err(errno) => {
                self.drop_cell(&cell);
                Err(Error::io(
                    "set aside",
                    &String::from_utf8_lossy(path),
                    errno,
                ))
            }
        }
    }

    /// Sets a pending task aside, by its id.
    pub fn quarantine_task(&self, id: &str, reason: &str) -> Result<()> {
        let shard = self.check_id(id)?;
        let guard = self.root.lock(usize::from(shard))?;
        let path = self.root.task_path(Area::Pending, shard, id);
        self.quarantine(path.as_bytes(), reason)?;
        drop(guard);
        self.forget(id);
        Ok(())
    }

    /// Moves one file of a task into quarantine/; the caller puts a whole one in its place.
    pub(super) fn quarantine_part(&self, dir: &OwnedFd, name: &str, of: &str) -> Result<()> {
        let reason = format!("{name} was not written by dfq; the task itself runs on");
        let cell = self.make_cell(&format!("{of}/{name}"), &reason)?;
        let target = format!("{cell}/{name}");
        match fs::renameat(dir, name, self.root.fd(), &target) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::io("set aside", name, errno)),
        }
    }

    /// Keeps a copy of a torn lease.json in quarantine/.
    pub(super) fn quarantine_copy(&self, content: &[u8], of: &str) -> Result<()> {
        let reason = "lease.json was not written by dfq; the task itself runs on";
        let cell = self.make_cell(&format!("{of}/lease.json"), reason)?;
        let copy = format!("{cell}/lease.json");
        sys::create_exclusive(self.root.fd(), &copy)
            .and_then(|file| sys::write_all(&file, content))
            .map_err(|errno| Error::io("set aside", &copy, errno))
    }

    fn make_cell(&self, path: &str, reason: &str) -> Result<String> {
        let cell = format!("quarantine/{}", self.chance.nonce());
        let note = serde_json::json!({ "path": path, "reason": reason }).to_string();
        let attempt = || -> rustix::io::Result<()> {
            sys::ensure_dir(self.root.fd(), "quarantine")?;
            fs::mkdirat(self.root.fd(), &cell, sys::DIR_MODE)?;
            let file = sys::create_exclusive(self.root.fd(), &format!("{cell}/reason.json"))?;
            sys::write_all(&file, note.as_bytes())
        };
        attempt().map_err(|errno| {
            self.drop_cell(&cell);
            Error::io("set aside", path, errno)
        })?;
        Ok(cell)
    }

    fn drop_cell(&self, cell: &str) {
        let root = self.root.fd();
        let _ = fs::unlinkat(root, format!("{cell}/reason.json"), fs::AtFlags::empty());
        let _ = fs::unlinkat(root, cell, fs::AtFlags::REMOVEDIR);
    }

    /// What is in quarantine/: where it was, and why it is there.
    pub fn quarantined(&self) -> Result<Vec<(String, String)>> {
        #[derive(serde::Deserialize)]
        struct Note {
            path: String,
            reason: String,
        }
        let mut cells = Vec::new();
        let failed = |errno| Error::io("read", "quarantine", errno);
        let dir = match sys::open_dir(self.root.fd(), "quarantine") {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(errno) => return Err(failed(errno)),
        };
        sys::each_entry(&dir, |name, _| {
            cells.push(String::from_utf8_lossy(name).into_owned())
        })
        .map_err(failed)?;
        let mut found = Vec::with_capacity(cells.len());
        for cell in cells {
            let path = format!("quarantine/{cell}/reason.json");
            let note = match sys::read_file_beneath(self.root.fd(), &path, 64 * 1024) {
                Ok((sys::Content::Whole(content), _)) => {
                    serde_json::from_slice::<Note>(&content).ok()
                }
                _ => None,
            };
            found.push(note.map_or((cell, "no reason is noted".to_owned()), |n| {
                (n.path, n.reason)
            }));
        }
        Ok(found)
    }
}
