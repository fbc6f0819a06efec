//! Locks that the kernel drops when their holder dies.
//!
//! Check-then-act steps (ack, nack, taking over a stale lease) are serialised per shard by a
//! POSIX record lock on one byte of `<root>/lock`. Record locks belong to the process, not to
//! the file handle: a child forked by a handler neither inherits nor prolongs one. For the same
//! reason they do not exclude threads of one process from each other, and closing *any* handle
//! on the file drops them all. So each lock file is opened once per process, shared by
//! every queue on it, and a mutex per byte stands in front of the kernel's lock.

use std::collections::HashMap;
use std::convert::Infallible;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{self, AtFlags, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result};
use crate::forked::PerProcess;
use crate::sys;

/// The lock that guards pushes with dependencies; the others are shards.
pub const GRAPH: usize = 256;
/// The lock that guards queue-wide files: queue.json, boot.json, the archive.
pub const QUEUE: usize = 257;
const COUNT: usize = 258;

/// So many lock files stay open though no queue uses them any more.
const MOST_IDLE: usize = 32;

/// How long to wait for a lock: holders keep it for microseconds, or an fsync.
const PATIENCE: Duration = Duration::from_secs(30);

/// One lock file, open once in this process.
pub struct LockFile {
    file: OwnedFd,
    key: (u64, u64),
    writable: bool,
    threads: Vec<Mutex<()>>,
}

type Registry = Mutex<HashMap<(u64, u64), Arc<LockFile>>>;

/// A forked child starts an empty one; its parent's handles stay open, unused: closing one would
/// drop the child's own locks on the file.
fn registry() -> &'static Registry {
    static REGISTRY: PerProcess<Registry> = PerProcess::new();
    match REGISTRY.get_or_make(|| Ok::<_, Infallible>(Registry::default())) {
        Ok(registry) => registry,
        Err(never) => match never {},
    }
}

// st_dev and st_ino differ in width between systems.
#[allow(clippy::unnecessary_cast)]
fn key(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

impl LockFile {
    /// The process's handle on `<root>/lock`. It is not closed with its queue: another may be
    /// just opening it, and closing would drop that one's locks.
    pub fn of(root: BorrowedFd<'_>) -> Result<Arc<LockFile>> {
        let failed = |errno| Error::io("open", "lock", errno);
        let mut known = registry().lock();
        if let Ok(stat) = fs::statat(root, "lock", AtFlags::SYMLINK_NOFOLLOW) {
            if let Some(lock) = known.get(&key(&stat)) {
                return Ok(Arc::clone(lock));
            }
        }
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = flags | OFlags::RDWR | OFlags::CREATE;
        let (file, writable) = match fs::openat(root, "lock", create, sys::FILE_MODE) {
            Ok(file) => (file, true),
            // A read-only disk can still be looked at.
            Err(Errno::ROFS) => {
                let file = fs::openat(root, "lock", flags | OFlags::RDONLY, sys::FILE_MODE);
                (file.map_err(|_| failed(Errno::ROFS))?, false)
            }
            Err(errno) => return Err(failed(errno)),
        };
        if known.len() >= MOST_IDLE {
            // Nobody can hold a lock of a file that no queue uses, so closing it drops none.
            known.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        let key = key(&fs::fstat(&file).map_err(failed)?);
        if let Some(lock) = known.get(&key) {
            // Made by somebody between our look and our open. Closing a second handle would
            // drop the locks of the first, so it stays open.
            std::mem::forget(file);
            return Ok(Arc::clone(lock));
        }
        let threads = (0..COUNT).map(|_| Mutex::new(())).collect();
        let lock = Arc::new(LockFile {
            file,
            key,
            writable,
            threads,
        });
        known.insert(key, Arc::clone(&lock));
        Ok(lock)
    }

    /// Whether this is (still) the file that others lock in this folder.
    pub fn stands_in(&self, root: BorrowedFd<'_>) -> bool {
        fs::statat(root, "lock", AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| key(&s) == self.key)
    }

    /// Whether locks can be taken at all: not on a read-only disk.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Takes lock number `which`, waiting a bounded time.
    pub fn take(self: Arc<Self>, which: usize) -> Result<Guard> {
        if !self.writable {
            return Err(Error::io("change", "the queue", Errno::ROFS));
        }
        let thread = self.threads[which].try_lock_for(PATIENCE).ok_or_else(|| {
            Error::new(
                Kind::Busy,
                "another thread holds a lock of the queue; try again",
            )
        })?;
        // The guard unlocks it again: it can't borrow from the Arc it holds.
        std::mem::forget(thread);
        let guard = Guard {
            lock: self,
            which,
            locked: false,
        };
        guard.wait()
    }
}

/// A lock held until dropped.
pub struct Guard {
    lock: Arc<LockFile>,
    which: usize,
    locked: bool,
}

impl Guard {
    /// The file the lock is on.
    pub fn file(&self) -> &LockFile {
        &self.lock
    }

    fn wait(mut self) -> Result<Guard> {
        let mut pause = Duration::from_micros(20);
        let mut waited = Duration::ZERO;
        loop {
            match self.lock.fcntl(libc::F_SETLK, libc::F_WRLCK, self.which) {
                Ok(_) => {
                    self.locked = true;
                    return Ok(self);
                }
                Err(errno) if errno == libc::EAGAIN || errno == libc::EACCES => {}
                Err(libc::EINTR) => continue,
                Err(errno) => {
                    let errno = Errno::from_raw_os_error(errno);
                    return Err(Error::io("lock", "lock", errno));
                }
            }
            if waited >= PATIENCE {
                return Err(self.lock.busy(self.which));
            }
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

impl LockFile {
    fn busy(&self, which: usize) -> Error {
        let holder = self
            .fcntl(libc::F_GETLK, libc::F_WRLCK, which)
            .map_or(0, |l| l.l_pid);
        Error::new(
            Kind::Busy,
            format!(
                "process {holder} has held a lock of the queue for {} s; is it stopped? \
                 Continue or end it, then try again",
                PATIENCE.as_secs()
            ),
        )
    }

    fn fcntl(
        &self,
        command: libc::c_int,
        kind: libc::c_int,
        which: usize,
    ) -> std::result::Result<libc::flock, i32> {
        // SAFETY: flock is plain data, and zero is a value of each of its fields.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = kind as _;
        range.l_whence = libc::SEEK_SET as _;
        range.l_start = which as _;
        range.l_len = 1;
        // SAFETY: the handle is open, and `range` outlives the call.
        let status = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &mut range) };
        if status == -1 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        Ok(range)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.locked {
            // Unlocking a byte we hold can't fail; were it to, the lock ends with the process.
            let _ = self.lock.fcntl(libc::F_SETLK, libc::F_UNLCK, self.which);
        }
        // SAFETY: take() locked it and forgot its guard, for this one to unlock.
        unsafe { self.lock.threads[self.which].force_unlock() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_opens_many_folders_does_not_keep_their_lock_files_for_ever() {
        let folders: Vec<_> = (0..MOST_IDLE * 3)
            .map(|_| tempfile::tempdir().unwrap())
            .collect();
        let kept: Vec<_> = folders
            .iter()
            .enumerate()
            .filter_map(|(number, folder)| {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let root = fs::open(folder.path(), flags, fs::Mode::empty()).unwrap();
                let lock = LockFile::of(std::os::fd::AsFd::as_fd(&root)).unwrap();
                // Some are in use, and stay.
                (number % 8 == 0).then_some(lock)
            })
            .collect();
        let known = registry().lock();
        assert!(known.len() <= MOST_IDLE + kept.len() + 1);
        for lock in &kept {
            let key = key(&fs::fstat(&lock.file).unwrap());
            assert!(known.contains_key(&key));
        }
    }
}
