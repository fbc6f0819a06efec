//! The file queue: a task is a directory for its whole life; its state is where it stands.
//!
//! The order of system calls that makes each verb safe is written at the top of its file.
//! Three rules hold for all of them:
//!
//! 1. A task directory appears and moves by one rename. Nobody sees half of one.
//! 2. Whatever leaves `pending/` has a `lease.json` inside. So a claim that opened the directory
//!    before it moved can't create a second lease: the exclusive create fails.
//! 3. Check-then-act on a task (ack, nack, take-over…) holds the lock of its shard. The claim
//!    needs none: the exclusive create is check and act in one.

mod claim;
mod inspect;
mod push;
mod quarantine;
mod reap;
mod remove;
mod settle;
mod sweep;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use crate::chance::Chance;
use crate::envelope::{Envelope, TaskError};
use crate::error::{Error, Kind, Result};
use crate::forked::PerProcess;
use crate::id;
use crate::kept::KeptLeases;
use crate::lease::Lease;
use crate::pending::Pending;
use crate::root::{Area, Root};
use crate::sys::{self, Content};
use crate::time::{Now, Stamp};
use crate::watch::Bell;

pub use claim::{ClaimRequest, Claimed};
pub use inspect::{Counts, Record};
pub use push::{NewTask, Pushed};
pub use settle::Outcome;
pub use sweep::{Retention, SweepReport};

/// A lease.json is never larger.
const MAX_LEASE_BYTES: usize = 16 * 1024;
/// A torn lease or task gets this long before it counts as damaged: its writer may be at work.
const TORN_GRACE_MS: i64 = 2_000;
/// Foreign leases are looked at this often: their holder may have died.
const LEASE_CHECK_MS: i64 = 5_000;

/// What the core must know of a queue's policy.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Deliveries before a task fails, unless it says otherwise.
    pub max_attempts: u32,
    /// The largest task.json, result.json or state.json that is read.
    pub max_file_bytes: usize,
}

/// An open queue folder, and all its verbs. Safe to share between threads.
pub struct FileQueue {
    root: Root,
    settings: Settings,
    own: PerProcess<Own>,
    chance: Chance,
    /// The shards of pending/ that a power cut can't take back, as far as this queue knows.
    synced_shards: [AtomicBool; 256],
}

/// What belongs to the running process.
struct Own {
    pending: Mutex<Pending>,
    bell: Bell,
    kept: KeptLeases,
    /// Leases from other machines whose file is stamped in the future: when each was first seen.
    observed: Mutex<HashMap<String, (String, i64)>>,
}

/// A task found in an area, with a handle on its directory.
struct Found {
    area: Area,
    dir: OwnedFd,
}

impl FileQueue {
    /// Opens the queue in a folder, making the folder if it is missing.
    pub fn open(path: &str, settings: Settings, seed: u128) -> Result<FileQueue> {
        let root = Root::open(path)?;
        Ok(FileQueue {
            own: PerProcess::new(),
            chance: Chance::new(seed),
            synced_shards: std::array::from_fn(|_| AtomicBool::new(false)),
            root,
            settings,
        })
    }

    /// The error to tell: a call that failed because the folder is gone says just that.
    pub fn explain(&self, error: Error) -> Error {
        match error.kind {
            Kind::Unavailable => self.root.check_present().err().unwrap_or(error),
            _ => error,
        }
    }

    /// Whether the folder is shared with other machines.
    pub fn is_network(&self) -> bool {
        self.root.is_network()
    }

    /// Whether the folder is in the flat layout.
    pub fn is_flat(&self) -> bool {
        self.root.layout() == crate::layout::Layout::Flat
    }

    /// Whether new tasks are told by the kernel instead of found by polling.
    pub fn is_watched(&self) -> Result<bool> {
        Ok(self.own()?.pending.lock().is_watched())
    }

    fn own(&self) -> Result<&Own> {
        self.own.get_or_make(|| {
            Ok(Own {
                pending: Mutex::new(Pending::new(&self.root)),
                bell: Bell::default(),
                kept: KeptLeases::default(),
                observed: Mutex::new(HashMap::new()),
            })
        })
    }

    /// Waits until there may be work, at most `timeout_ms`. True: worth a claim.
    pub fn wait(&self, timeout_ms: i64, poll_ms: i64, now: Now) -> Result<bool> {
        self.root.check_present()?;
        let own = self.own()?;
        let (fd, due_ms) = {
            let mut pending = own.pending.lock();
            if pending.start_watching(&self.root, now)? {
                // What came before the watch, a claim finds.
                return Ok(true);
            }
            let due = pending.index.next_due_wall_ms().map(|at| at - now.wall_ms);
            let check = pending
                .index
                .next_check_boot_ms()
                .map(|at| at - now.boot_ms);
            (pending.watch_fd(), due.into_iter().chain(check).min())
        };
        let mut limit = timeout_ms;
        if fd.is_none() {
            limit = limit.min(poll_ms);
        }
        let cut_short = due_ms.is_some_and(|due| due <= limit);
        let limit = due_ms.map_or(limit, |due| limit.min(due.max(0)));
        let woken = own.bell.wait(fd.as_ref(), limit);
        let woken = woken.map_err(|e| Error::io("make", "a pipe", e))?;
        Ok(woken || cut_short || fd.is_none())
    }

    /// Ends the waits of other threads.
    pub fn interrupt(&self) {
        if let Ok(own) = self.own() {
            own.bell.ring();
        }
    }

    /// Whether claims are paused.
    pub fn is_paused(&self) -> Result<bool> {
        self.root.is_paused()
    }

    /// Stops claims on this queue, by everybody, until [`FileQueue::resume`].
    pub fn pause(&self, note: &[u8]) -> Result<()> {
        let nonce = self.chance.nonce();
        self.root
            .replace(self.root.fd(), "paused", note, &nonce, true)?;
        sys::sync(self.root.handle()).map_err(|e| Error::io("sync", self.root.path(), e))
    }

    /// Allows claims again.
    pub fn resume(&self) -> Result<()> {
        match fs::unlinkat(self.root.fd(), "paused", AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::io("remove", "paused", errno)),
        }
    }

    fn check_id(&self, id: &str) -> Result<u8> {
        if id::is_valid(id.as_bytes()) {
            return Ok(id::shard_of(id));
        }
        Err(Error::new(
            Kind::Invalid,
            format!("{id:?} is not a task id"),
        ))
    }

    fn open_task(&self, area: Area, shard: u8, id: &str) -> Result<Option<OwnedFd>> {
        let path = self.root.task_path(area, shard, id);
        match sys::open_dir_handle(self.root.fd(), &path) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(Error::io("open", &path, errno)),
        }
    }

    fn find(&self, shard: u8, id: &str) -> Result<Option<Found>> {
        for area in [Area::Pending, Area::Completed, Area::Failed] {
            if let Some(dir) = self.open_task(area, shard, id)? {
                return Ok(Some(Found { area, dir }));
            }
        }
        Ok(None)
    }

    fn read_lease(&self, dir: &OwnedFd) -> Result<LeaseFile> {
        match sys::read_file(dir.as_fd(), "lease.json", MAX_LEASE_BYTES) {
            Ok(Content::Missing) => Ok(LeaseFile::None),
            Ok(Content::Foreign(_)) => Ok(LeaseFile::Torn),
            Ok(Content::Whole(content)) => Ok(match Lease::parse(&content) {
                Some(lease) => LeaseFile::Lease(Box::new(lease)),
                None => LeaseFile::Torn,
            }),
            Err(errno) => Err(Error::io("read", "lease.json", errno)),
        }
    }

    /// Finishes a task: moves its directory to another area by one rename.
    ///
    /// The mtime of its lease.json says when: it costs no file, copies of the folder keep it,
    /// and it wakes nobody who watches the shard.
    fn finish(&self, to: Area, shard: u8, id: &str, lease: &OwnedFd, at: Stamp) -> Result<()> {
        let from = Area::Pending;
        self.root.ensure_shard(to, shard)?;
        let (source, target) = (
            self.root.task_path(from, shard, id),
            self.root.task_path(to, shard, id),
        );
        let root = self.root.fd();
        let at = fs::Timespec {
            tv_sec: at.0.div_euclid(1000) as _,
            tv_nsec: (at.0.rem_euclid(1000) * 1_000_000) as _,
        };
        let at = fs::Timestamps {
            last_access: at,
            last_modification: at,
        };
        fs::futimens(lease, &at).map_err(|e| Error::io("stamp", "lease.json", e))?;
        match fs::renameat(root, &source, root, &target) {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => {
                // The shard was removed by hand: make it again, once.
                self.root.forget_shards();
                self.root.ensure_shard(to, shard)?;
                fs::renameat(root, &source, root, &target)
                    .map_err(|e| Error::io("move", &source, e))
            }
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {
                // A task of this id was finished before. Set the older record aside.
                let what = "another task of the same id was finished later";
                self.quarantine(target.as_bytes(), what)?;
                fs::renameat(root, &source, root, &target)
                    .map_err(|e| Error::io("move", &source, e))
            }
            Err(errno) => Err(Error::io("move", &source, errno)),
        }
    }

    /// Notes an error in the task and moves it to failed/.
    fn give_up(
        &self,
        shard: u8,
        id: &str,
        dir: &OwnedFd,
        task: &mut Envelope,
        error: TaskError,
        now: Now,
    ) -> Result<()> {
        task.remember(error);
        self.write_task(dir, task)?;
        let lease = sys::open_file(dir.as_fd(), "lease.json")
            .map_err(|e| Error::io("open", "lease.json", e))?;
        self.finish(Area::Failed, shard, id, &lease, Stamp(now.wall_ms))
    }

    /// Puts a result or a state beside the task; a foreign thing in its place is set aside.
    fn put_part(
        &self,
        id: &str,
        dir: &OwnedFd,
        name: &str,
        bytes: &[u8],
        sync: bool,
    ) -> Result<()> {
        let put = || {
            self.root
                .try_replace(dir.as_fd(), name, bytes, &self.chance.nonce(), sync)
        };
        let result = match put() {
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                self.quarantine_part(dir, name, id)?;
                put()
            }
            other => other,
        };
        result.map_err(|errno| Error::io("write", name, errno))
    }

    /// Replaces task.json. Synced: after a power cut the payload must still be there.
    fn write_task(&self, dir: &OwnedFd, task: &Envelope) -> Result<()> {
        let nonce = self.chance.nonce();
        self.root
            .replace(dir.as_fd(), "task.json", &task.to_bytes(), &nonce, true)
    }

    /// Tells other processes that a task of this shard may be claimable: moves the shard's mtime.
    fn touch_shard(&self, shard: u8) -> Result<()> {
        let path = self.root.shard_path(Area::Pending, shard);
        // Both times: of the mtime alone, inotify does not tell as a change of attributes.
        let now = fs::Timespec {
            tv_sec: 0,
            tv_nsec: fs::UTIME_NOW as _,
        };
        let now = fs::Timestamps {
            last_access: now,
            last_modification: now,
        };
        fs::utimensat(self.root.fd(), &path, &now, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| Error::io("touch", &path, e))
    }

    /// Makes a shard of pending/ if it is missing, and sees to it once that it stays.
    ///
    /// Not only one that was made here: whoever made it may have been killed before its sync.
    fn ensure_durable_shard(&self, shard: u8) -> Result<()> {
        let synced = &self.synced_shards[usize::from(shard)];
        let made = self.root.ensure_shard(Area::Pending, shard)?;
        if made || !synced.load(Ordering::Relaxed) {
            self.sync_dir("pending")?;
            synced.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> Result<()> {
        let failed = |errno| Error::io("sync", path, errno);
        let dir = sys::open_dir(self.root.fd(), path).map_err(failed)?;
        sys::sync(&dir).map_err(failed)
    }

    /// The file system's own time, by the mtime of a file made now.
    fn store_time_ms(&self) -> Result<i64> {
        let scratch = self.root.scratch_path(&self.chance.nonce());
        let failed = |errno| Error::io("write", &scratch, errno);
        let file = self.root.create_scratch(&scratch).map_err(failed)?;
        let stat = fs::fstat(&file).map_err(failed)?;
        fs::unlinkat(self.root.fd(), &scratch, AtFlags::empty()).map_err(failed)?;
        Ok(mtime_ms(&stat))
    }

    /// When a task was finished: see [`FileQueue::finish`].
    fn finished_ms(&self, id: &str, dir: &OwnedFd) -> Result<Option<i64>> {
        match fs::statat(dir, "lease.json", AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(mtime_ms(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io("look at task", id, errno)),
        }
    }

    fn index_shard(&self, shard: u8) -> u8 {
        if self.is_flat() {
            0
        } else {
            shard
        }
    }
}

/// What stands in a lease.json.
enum LeaseFile {
    /// There is none.
    None,
    /// It is being written, was torn by a crash, or is foreign.
    Torn,
    /// A lease.
    Lease(Box<Lease>),
}

#[allow(clippy::unnecessary_cast)] // The widths differ between systems.
fn mtime_ms(stat: &fs::Stat) -> i64 {
    stat.st_mtime as i64 * 1000 + stat.st_mtime_nsec as i64 / 1_000_000
}

fn error_entry(lease: &Lease, kind: &str, message: &str, now: Now) -> TaskError {
    TaskError {
        at: Stamp(now.wall_ms),
        attempt: lease.attempt,
        fence: lease.fence,
        worker_id: Some(lease.worker_id.clone()),
        kind: kind.to_owned(),
        message: message.to_owned(),
    }
}
