//! Heartbeat, ack, nack, release, bury: what a holder does with its lease.
//!
//! Each one takes the shard's lock, reads lease.json, and goes on only if the lease in it is the
//! caller's. Then:
//!
//! ack      [write result.json aside, rename it in] · stamp lease.json · rename the
//!          directory into completed/.
//!          Not synced: losing an ack only delivers again.
//! nack     write task.json with its history aside, fsync, rename it in · remove lease.json ·
//!          touch the shard. Or, attempts used up: rename the directory into failed/.
//! release  like nack, but the delivery does not count.
//! A crash between two steps leaves the lease of a dead process, which others take over.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::{error_entry, FileQueue, LeaseFile, MAX_LEASE_BYTES};
use crate::error::{Error, Kind, Result};
use crate::lease::{Lease, LeaseKey};
use crate::lock::Guard;
use crate::root::Area;
use crate::scan::{self, Found};
use crate::sys::{self, Content};
use crate::time::{Now, Stamp};

/// What became of a task that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It will be delivered again.
    Retry,
    /// It is in failed/.
    Failed,
}

/// How a lease ends without an ack.
pub(super) struct Ending<'a> {
    pub kind: &'a str,
    pub message: &'a str,
    pub delay_ms: i64,
    /// Whether the delivery counts as an attempt.
    pub counts: bool,
}

struct Held {
    shard: u8,
    dir: OwnedFd,
    lease: Box<Lease>,
    _guard: Guard,
}

impl FileQueue {
    /// Renews a lease.
    pub fn heartbeat(
        &self,
        id: &str,
        lease_id: &str,
        fence: u64,
        lease_ms: i64,
        now: Now,
    ) -> Result<Lease> {
        let mut held = self.hold(id, lease_id, fence)?;
        held.lease.renew(lease_ms, now);
        let nonce = self.chance.nonce();
        let bytes = held.lease.to_bytes();
        self.root
            .replace(held.dir.as_fd(), "lease.json", &bytes, &nonce, false)?;
        Ok(*held.lease)
    }

    /// Completes a task, as of a moment by the time of day.
    pub fn ack(
        &self,
        id: &str,
        lease_id: &str,
        fence: u64,
        result: Option<&[u8]>,
        at: Stamp,
    ) -> Result<()> {
        let key = LeaseKey { lease_id, fence };
        let shard = match self.own()?.kept.shard_of(id, &key) {
            Some(shard) => shard,
            None => self.check_id(id)?,
        };
        let guard = self.root.lock(usize::from(shard))?;
        // By its path: under the lock nobody puts another directory in this one's place.
        let path = self.root.lease_path(shard, id);
        let lease = match self.own()?.kept.take_standing(&key, self.root.fd(), &path) {
            Some(file) => Some(file),
            None => self.read_own_lease(&path, &key)?,
        };
        let Some(lease) = lease else {
            return Err(self.refusal(shard, id, fence));
        };
        if let Some(result) = result {
            let Some(dir) = self.open_task(Area::Pending, shard, id)? else {
                return Err(self.refusal(shard, id, fence));
            };
            self.put_part(id, &dir, "result.json", result, false)?;
        }
        self.finish(Area::Completed, shard, id, &lease, at)?;
        drop(guard);
        let mut pending = self.own()?.pending.lock();
        if let Some(entry) = pending.index.find(self.index_shard(shard), id.as_bytes()) {
            pending.index.remove(entry);
        }
        pending.index.unblock(id);
        Ok(())
    }

    /// Gives a task back after a failure.
    #[allow(clippy::too_many_arguments)]
    pub fn nack(
        &self,
        id: &str,
        lease_id: &str,
        fence: u64,
        kind: &str,
        message: &str,
        delay_ms: i64,
        now: Now,
    ) -> Result<Outcome> {
        let ending = Ending {
            kind,
            message,
            delay_ms,
            counts: true,
        };
        self.settle(id, lease_id, fence, &ending, now)
    }

    /// Gives a task back undone.
    pub fn release(
        &self,
        id: &str,
        lease_id: &str,
        fence: u64,
        delay_ms: i64,
        now: Now,
    ) -> Result<()> {
        let ending = Ending {
            kind: "",
            message: "",
            delay_ms,
            counts: false,
        };
        self.settle(id, lease_id, fence, &ending, now).map(drop)
    }

    /// Gives a task up.
    pub fn bury(
        &self,
        id: &str,
        lease_id: &str,
        fence: u64,
        message: &str,
        now: Now,
    ) -> Result<()> {
        let held = self.hold(id, lease_id, fence)?;
        let limit = self.settings.max_file_bytes;
        let found = scan::read_task(held.dir.as_fd(), id, limit);
        let mut task = match found.map_err(|e| Error::io("read task", id, e))? {
            Found::Task(task) => task,
            Found::Gone | Found::Damaged(_) => return Err(self.not_held(held.shard, id)),
        };
        task.attempts = held.lease.attempt;
        task.fence = task.fence.max(held.lease.fence);
        let error = error_entry(&held.lease, "buried", message, now);
        self.give_up(held.shard, id, &held.dir, &mut task, error, now)?;
        drop(held);
        self.forget(id);
        Ok(())
    }

    /// Keeps a value with the task until it is finished.
    pub fn save_state(&self, id: &str, lease_id: &str, fence: u64, state: &[u8]) -> Result<()> {
        let held = self.hold(id, lease_id, fence)?;
        self.put_part(id, &held.dir, "state.json", state, true)
    }

    fn settle(
        &self,
        id: &str,
        lease_id: &str,
        fence: u64,
        ending: &Ending<'_>,
        now: Now,
    ) -> Result<Outcome> {
        let held = self.hold(id, lease_id, fence)?;
        let outcome = self.end_lease(held.shard, id, &held.dir, &held.lease, ending, now)?;
        let index_shard = self.index_shard(held.shard);
        drop(held);
        let mut pending = self.own()?.pending.lock();
        if let Some(entry) = pending.index.find(index_shard, id.as_bytes()) {
            match outcome {
                Outcome::Retry if ending.delay_ms > 0 => {
                    pending
                        .index
                        .set_delayed(entry, now.wall_ms + ending.delay_ms);
                }
                Outcome::Retry => pending.index.set_ready(entry),
                Outcome::Failed => pending.index.remove(entry),
            }
        }
        Ok(outcome)
    }

    /// Ends a lease under the shard's lock: back to pending, or to failed/.
    pub(super) fn end_lease(
        &self,
        shard: u8,
        id: &str,
        dir: &OwnedFd,
        lease: &Lease,
        ending: &Ending<'_>,
        now: Now,
    ) -> Result<Outcome> {
        let limit = self.settings.max_file_bytes;
        let found =
            scan::read_task(dir.as_fd(), id, limit).map_err(|e| Error::io("read task", id, e))?;
        let mut task = match found {
            Found::Task(task) => task,
            Found::Gone => return Err(self.not_held(shard, id)),
            Found::Damaged(what) => {
                let path = self.root.task_path(Area::Pending, shard, id);
                self.quarantine(path.as_bytes(), &what)?;
                return Ok(Outcome::Failed);
            }
        };
        // An ack that was cut short left its result: it is not the next holder's.
        match fs::unlinkat(dir, "result.json", AtFlags::empty()) {
            // A directory of that name is nobody's result.
            Ok(()) | Err(Errno::NOENT | Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(Error::io("remove", "result.json", errno)),
        }
        task.fence = task.fence.max(lease.fence);
        if ending.counts {
            task.attempts = lease.attempt;
            let error = error_entry(lease, ending.kind, ending.message, now);
            let allowed = task.attempts_allowed(self.settings.max_attempts);
            if task.attempts >= allowed {
                self.give_up(shard, id, dir, &mut task, error, now)?;
                return Ok(Outcome::Failed);
            }
            task.remember(error);
        }
        task.not_before = (ending.delay_ms > 0).then(|| Stamp(now.wall_ms + ending.delay_ms));
        self.write_task(dir, &task)?;
        fs::unlinkat(dir, "lease.json", AtFlags::empty())
            .map_err(|e| Error::io("release task", id, e))?;
        // It is given back: a wake-up that fails only lets others find it a moment later.
        let _ = self.touch_shard(shard);
        Ok(Outcome::Retry)
    }

    /// Takes the lock and checks that the caller's lease is the one in the file.
    fn hold(&self, id: &str, lease_id: &str, fence: u64) -> Result<Held> {
        let shard = self.check_id(id)?;
        let guard = self.root.lock(usize::from(shard))?;
        let key = LeaseKey { lease_id, fence };
        self.own()?.kept.drop_lease(&key);
        if let Some(dir) = self.open_task(Area::Pending, shard, id)? {
            match self.read_lease(&dir)? {
                LeaseFile::Lease(lease) if lease.key() == key => {
                    return Ok(Held {
                        shard,
                        dir,
                        lease,
                        _guard: guard,
                    })
                }
                _ => {}
            }
        }
        Err(self.refusal(shard, id, fence))
    }

    /// The file of a lease, if the one at `path` is this one.
    fn read_own_lease(&self, path: &str, key: &LeaseKey<'_>) -> Result<Option<OwnedFd>> {
        match sys::read_file_beneath(self.root.fd(), path, MAX_LEASE_BYTES) {
            Ok((Content::Whole(content), file)) => {
                Ok(file.filter(|_| LeaseKey::parse(&content).as_ref() == Some(key)))
            }
            Ok(_) | Err(Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(Error::io("read", path, errno)),
        }
    }

    /// Why a lease does not count, for somebody who asked under the shard's lock.
    fn refusal(&self, shard: u8, id: &str, fence: u64) -> Error {
        let dir = match self.open_task(Area::Pending, shard, id) {
            Ok(Some(dir)) => dir,
            Ok(None) => return self.not_held(shard, id),
            Err(error) => return error,
        };
        match self.read_lease(&dir) {
            Ok(LeaseFile::Lease(lease)) => Error::new(
                Kind::LeaseTaken,
                format!(
                    "task {id:?} is held by {} now, with fence {}; this lease has fence {fence}",
                    lease.worker_id, lease.fence
                ),
            ),
            Ok(LeaseFile::None | LeaseFile::Torn) => Error::new(
                Kind::LeaseNotHeld,
                format!("the lease on task {id:?} with fence {fence} has ended; nobody holds it"),
            ),
            Err(error) => error,
        }
    }

    /// Why a task that is not pending can't be settled.
    fn not_held(&self, shard: u8, id: &str) -> Error {
        let found = match self.find(shard, id) {
            Ok(found) => found,
            Err(error) => return error,
        };
        match found {
            Some(found) if found.area == Area::Completed => {
                let by = match self.read_lease(&found.dir) {
                    Ok(LeaseFile::Lease(l)) => {
                        format!(" by {} with fence {}", l.worker_id, l.fence)
                    }
                    _ => String::new(),
                };
                Error::new(
                    Kind::Completed,
                    format!("task {id:?} is completed already{by}"),
                )
            }
            Some(found) if found.area == Area::Failed => Error::new(
                Kind::LeaseNotHeld,
                format!("task {id:?} was moved to failed; `dfq show` tells why"),
            ),
            Some(_) => Error::new(Kind::LeaseNotHeld, format!("nobody holds task {id:?}")),
            None => match self.root.check_present() {
                Err(error) => error,
                Ok(()) => match self.is_completed_elsewhere(id) {
                    Ok(true) => {
                        Error::new(Kind::Completed, format!("task {id:?} is completed already"))
                    }
                    _ => Error::new(Kind::LeaseNotHeld, format!("task {id:?} is gone")),
                },
            },
        }
    }

    /// Drops a task from the index after it left pending/.
    pub(super) fn forget(&self, id: &str) {
        let shard = self.index_shard(crate::id::shard_of(id));
        let Ok(own) = self.own() else { return };
        let mut pending = own.pending.lock();
        if let Some(entry) = pending.index.find(shard, id.as_bytes()) {
            pending.index.remove(entry);
        }
    }
}
