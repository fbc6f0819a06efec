//! Locks that the kernel drops when their holder dies.
//!
//! Check-then-act steps (ack, nack, taking over a stale lease) are serialised per shard by a
//! POSIX record lock on one byte of `<root>/lock`. Record locks belong to the process, not to
//! the file handle: a child forked by a handler neither inherits nor prolongs one. For the same
//! reason they do not exclude threads of one process from each other, and closing *any* handle
//! on the file drops them all. So each lock file is opened once per process, shared by
//! every queue on it, and a mutex per byte stands in front of the kernel's lock.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{self, AtFlags, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result};
use crate::{host, sys};

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
    writable: bool,
    pid: u32,
    threads: Vec<Mutex<()>>,
}

type Registry = Mutex<HashMap<(u64, u64), Arc<LockFile>>>;

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::default)
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
        let pid = host::pid();
        let mut known = registry().lock();
        if let Ok(stat) = fs::statat(root, "lock", AtFlags::SYMLINK_NOFOLLOW) {
            if let Some(lock) = known.get(&key(&stat)).filter(|lock| lock.pid == pid) {
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
            known.retain(|_, lock| Arc::strong_count(lock) > 1 || lock.pid != pid);
        }
        let key = key(&fs::fstat(&file).map_err(failed)?);
        let threads = (0..COUNT).map(|_| Mutex::new(())).collect();
        let lock = Arc::new(LockFile {
            file,
            writable,
            pid,
            threads,
        });
        // A parent's entry stays alive: dropping it would close its handle.
        if let Some(inherited) = known.insert(key, Arc::clone(&lock)) {
            std::mem::forget(inherited);
        }
        Ok(lock)
    }

    /// Whether this handle belongs to the running process, not to one it was forked from.
    pub fn is_ours(&self) -> bool {
        self.pid == host::pid()
    }

    /// Whether locks can be taken at all: not on a read-only disk.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Takes lock number `which`, waiting a bounded time.
    pub fn take(&self, which: usize) -> Result<Guard<'_>> {
        if !self.writable {
            return Err(Error::io("change", "the queue", Errno::ROFS));
        }
        let thread = self.threads[which].try_lock_for(PATIENCE).ok_or_else(|| {
            Error::new(
                Kind::Busy,
                "another thread holds a lock of the queue; try again",
            )
        })?;
        let mut pause = Duration::from_micros(20);
        let mut waited = Duration::ZERO;
        loop {
            match self.fcntl(libc::F_SETLK, libc::F_WRLCK, which) {
                Ok(_) => {
                    return Ok(Guard {
                        lock: self,
                        which,
                        _thread: thread,
                    })
                }
                Err(errno) if errno == libc::EAGAIN || errno == libc::EACCES => {}
                Err(libc::EINTR) => continue,
                Err(errno) => {
                    let errno = Errno::from_raw_os_error(errno);
                    return Err(Error::io("lock", "lock", errno));
                }
            }
            if waited >= PATIENCE {
                return Err(self.busy(which));
            }
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

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

/// A lock held until dropped.
pub struct Guard<'a> {
    lock: &'a LockFile,
    which: usize,
    _thread: MutexGuard<'a, ()>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // Unlocking a byte we hold can't fail; were it to, the lock ends with the process.
        let _ = self.lock.fcntl(libc::F_SETLK, libc::F_UNLCK, self.which);
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
