//! What a person does to a task by its id: cancel, bury, requeue, purge.
//!
//! cancel, bury  under the lock: put a lease of our own in place if there is none (rule 2) ·
//!               note the reason in task.json, synced · rename into failed/.
//! requeue       under the lock: write task.json with attempts 0, synced · remove lease.json ·
//!               rename into pending/ · fsync the shard.
//! purge         under the lock: rename into tmp/ · delete what is in it, lease.json last.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::{error_entry, FileQueue, LeaseFile};
use crate::envelope::Envelope;
use crate::error::{Error, Kind, Result};
use crate::lease::Lease;
use crate::root::Area;
use crate::scan::{self, Found};
use crate::sys;
use crate::time::Now;

/// So often a directory is emptied before it is left to the sweeper.
const MOST_LOOKS: usize = 3;

impl FileQueue {
    /// Moves a pending task to failed/. `held`: even if somebody holds it.
    pub fn fail(&self, id: &str, reason: &str, kind: &str, held: bool, now: Now) -> Result<()> {
        let shard = self.check_id(id)?;
        let guard = self.root.lock(usize::from(shard))?;
        let Some(dir) = self.open_task(Area::Pending, shard, id)? else {
            return Err(self.wrong_state(shard, id, "pending"));
        };
        let mut task = self.need_task(&dir, id)?;
        let own = self.own_lease(id, &task, now)?;
        let own_id = own.lease_id.clone();
        let lease = match sys::create_exclusive(dir.as_fd(), "lease.json") {
            Ok(file) => {
                if let Err(errno) = sys::write_all(&file, &own.to_bytes()) {
                    // Under the lock nobody took it for torn yet: it is ours to remove.
                    let _ = fs::unlinkat(&dir, "lease.json", AtFlags::empty());
                    return Err(Error::io("write", "lease.json", errno));
                }
                own
            }
            Err(Errno::EXIST) if held => match self.read_lease(&dir)? {
                LeaseFile::Lease(lease) => *lease,
                // Torn: its writer must not believe that it won.
                LeaseFile::None | LeaseFile::Torn => {
                    let (bytes, nonce) = (own.to_bytes(), self.chance.nonce());
                    self.root
                        .replace(dir.as_fd(), "lease.json", &bytes, &nonce, false)?;
                    own
                }
            },
            Err(Errno::EXIST) => {
                let by = match self.read_lease(&dir)? {
                    LeaseFile::Lease(lease) => format!(" by {}", lease.worker_id),
                    _ => String::new(),
                };
                return Err(Error::new(
                    Kind::WrongState,
                    format!("task {id:?} is held{by}; cancel it instead, or wait"),
                ));
            }
            Err(errno) => return Err(Error::io("write", "lease.json", errno)),
        };
        task.fence = task.fence.max(lease.fence);
        let mut error = error_entry(&lease, kind, reason, now);
        if lease.lease_id == own_id {
            error.worker_id = None;
        } else {
            // It was delivered, so that counts.
            task.attempts = lease.attempt;
        }
        error.attempt = task.attempts;
        let own = lease.lease_id == own_id;
        self.give_up(shard, id, &dir, &mut task, error, now)
            .inspect_err(|_| {
                if own {
                    // Nobody holds it. What can't be removed is stale at once, for all to take.
                    let _ = fs::unlinkat(&dir, "lease.json", AtFlags::empty());
                }
            })?;
        drop(guard);
        self.forget(id);
        Ok(())
    }

    fn own_lease(&self, id: &str, task: &Envelope, now: Now) -> Result<Lease> {
        let me = &self.root.process()?.me;
        let fence = self.root.next_fence(task.fence);
        Ok(Lease::new(
            id,
            format!("dfq-{}", me.pid),
            self.chance.nonce(),
            fence,
            task.attempts,
            me,
            now,
        ))
    }

    fn need_task(&self, dir: &OwnedFd, id: &str) -> Result<Box<Envelope>> {
        let found = scan::read_task(dir.as_fd(), id, self.settings.max_file_bytes);
        match found.map_err(|e| Error::io("read task", id, e))? {
            Found::Task(task) => Ok(task),
            Found::Gone => Err(Error::new(
                Kind::NotFound,
                format!("there is no task {id:?}"),
            )),
            Found::Damaged(what) => Err(Error::new(
                Kind::WrongState,
                format!("task {id:?} is damaged ({what}); a worker or `dfq sweep` sets it aside"),
            )),
        }
    }

    fn wrong_state(&self, shard: u8, id: &str, wanted: &str) -> Error {
        match self.find(shard, id) {
            Ok(Some(found)) => Error::new(
                Kind::WrongState,
                format!("task {id:?} is {}, not {wanted}", found.area.name()),
            ),
            Ok(None) => match self.root.check_present() {
                Ok(()) => Error::new(Kind::NotFound, format!("there is no task {id:?}")),
                Err(error) => error,
            },
            Err(error) => error,
        }
    }

    /// Gives a failed task its attempts back.
    pub fn requeue(&self, id: &str) -> Result<()> {
        let shard = self.check_id(id)?;
        let _guard = self.root.lock(usize::from(shard))?;
        let Some(dir) = self.open_task(Area::Failed, shard, id)? else {
            return Err(self.wrong_state(shard, id, "failed"));
        };
        let mut task = self.need_task(&dir, id)?;
        if let LeaseFile::Lease(lease) = self.read_lease(&dir)? {
            task.fence = task.fence.max(lease.fence);
        }
        task.attempts = 0;
        task.not_before = None;
        // Its time to live was for the first round; whoever requeues it wants it done.
        task.expires_at = None;
        self.write_task(&dir, &task)?;
        match fs::unlinkat(&dir, "lease.json", AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Error::io("remove", "lease.json", errno)),
        }
        self.ensure_durable_shard(shard)?;
        let source = self.root.task_path(Area::Failed, shard, id);
        let target = self.root.task_path(Area::Pending, shard, id);
        sys::rename_new(self.root.fd(), &source, &target)
            .map_err(|errno| Error::io("requeue", id, errno))?;
        self.sync_dir(&self.root.shard_path(Area::Pending, shard))
            .map_err(|error| {
                let told = "the task may have been requeued all the same; `dfq show` tells";
                Error::new(error.kind, format!("{}. {told}", error.message))
            })
    }

    /// Deletes a task for good. False: it is not there, or it is held and `held` is not set.
    pub fn remove(&self, area: Area, id: &str, held: bool) -> Result<bool> {
        let shard = self.check_id(id)?;
        let guard = self.root.lock(usize::from(shard))?;
        let Some(dir) = self.open_task(area, shard, id)? else {
            return self.remove_completed_file(area, id);
        };
        if area == Area::Pending {
            let leased = !matches!(self.read_lease(&dir)?, LeaseFile::None);
            if leased != held {
                return Ok(false);
            }
        }
        let scratch = self.root.scratch_path(&self.chance.nonce());
        let path = self.root.task_path(area, shard, id);
        fs::renameat(self.root.fd(), &path, self.root.fd(), &scratch)
            .map_err(|errno| Error::io("delete", &path, errno))?;
        drop(guard);
        self.delete_dir(&scratch)?;
        if area == Area::Pending {
            self.forget(id);
        }
        Ok(true)
    }

    fn remove_completed_file(&self, area: Area, id: &str) -> Result<bool> {
        let file = self
            .root
            .completed_file(id)
            .filter(|_| area == Area::Completed);
        let Some(file) = file else { return Ok(false) };
        match fs::unlinkat(self.root.fd(), &file, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(Error::io("delete", &file, errno)),
        }
    }

    /// Deletes a directory below tmp/ and what is in it, one level deep; symlinks are removed,
    /// never followed.
    pub(super) fn delete_dir(&self, path: &str) -> Result<()> {
        let failed = |errno| Error::io("delete", path, errno);
        match sys::open_dir_handle(self.root.fd(), path) {
            Ok(_) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return fs::unlinkat(self.root.fd(), path, AtFlags::empty()).map_err(failed)
            }
            Err(errno) => return Err(failed(errno)),
        }
        // A claim that had the directory open may put its lease there meanwhile: look again.
        for _ in 0..MOST_LOOKS {
            self.delete_files(path).map_err(failed)?;
            match fs::unlinkat(self.root.fd(), path, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        // What is below tmp/ the sweeper takes.
        Ok(())
    }

    fn delete_files(&self, path: &str) -> rustix::io::Result<()> {
        let dir = sys::open_dir(self.root.fd(), path)?;
        let mut names = Vec::new();
        sys::each_entry(&dir, |name, kind| names.push((name.to_vec(), kind)))?;
        // lease.json last: a claim that had the directory open finds no task before it finds
        // no lease.
        names.sort_by_key(|(name, _)| name == b"lease.json");
        for (name, kind) in names {
            let name = std::ffi::OsString::from(String::from_utf8_lossy(&name).into_owned());
            let flags = if kind == rustix::fs::FileType::Directory {
                AtFlags::REMOVEDIR
            } else {
                AtFlags::empty()
            };
            match fs::unlinkat(&dir, &*name, flags) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
