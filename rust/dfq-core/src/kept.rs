//! Leases this process wrote itself, kept open so that an ack need not read them again.
//!
//! An open file can't have its inode number given to another. So if the file of that number
//! stands at the lease's path, it is the very lease we wrote: others replace or remove a lease,
//! they never write into one (and if a stranger does, its size or time gives him away). Only on
//! local file systems: over NFS a server may reuse the number.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::{self, AtFlags, Stat};

use crate::lease::{Lease, LeaseKey};

/// File handles are few on a small machine; older leases are read again instead.
const MOST: usize = 64;

struct Kept {
    task_id: String,
    shard: u8,
    lease_id: String,
    fence: u64,
    file: OwnedFd,
    stat: Stat,
}

impl Kept {
    fn is(&self, key: &LeaseKey<'_>) -> bool {
        self.lease_id == key.lease_id && self.fence == key.fence
    }
}

/// The newest leases of this process.
#[derive(Default)]
pub struct KeptLeases(Mutex<VecDeque<Kept>>);

impl KeptLeases {
    /// Keeps a lease that was just written into `file`.
    pub fn keep(&self, lease: &Lease, shard: u8, file: OwnedFd, stat: Stat) {
        let mut kept = self.0.lock();
        if kept.len() >= MOST {
            kept.pop_front();
        }
        kept.push_back(Kept {
            task_id: lease.task_id.clone(),
            shard,
            lease_id: lease.lease_id.clone(),
            fence: lease.fence,
            file,
            stat,
        });
    }

    /// The shard of the task that a lease is on, if it was kept: no need to hash the id again.
    pub fn shard_of(&self, id: &str, key: &LeaseKey<'_>) -> Option<u8> {
        let kept = self.0.lock();
        let found = kept.iter().find(|k| k.is(key) && k.task_id == id)?;
        Some(found.shard)
    }

    /// Stops keeping all. True: there were some.
    pub fn clear(&self) -> bool {
        !std::mem::take(&mut *self.0.lock()).is_empty()
    }

    /// Stops keeping a lease.
    pub fn drop_lease(&self, key: &LeaseKey<'_>) {
        drop(self.take(key));
    }

    /// The file of a lease, if it was kept and still stands at `path`. Ask under the lock of
    /// the task's shard.
    pub fn take_standing(
        &self,
        key: &LeaseKey<'_>,
        root: BorrowedFd<'_>,
        path: &str,
    ) -> Option<OwnedFd> {
        let kept = self.take(key)?;
        let stat = fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (identity(&stat) == identity(&kept.stat)).then_some(kept.file)
    }

    fn take(&self, key: &LeaseKey<'_>) -> Option<Kept> {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|k| k.is(key))?;
        kept.remove(at)
    }
}

#[allow(clippy::unnecessary_cast)] // The widths differ between systems.
fn identity(stat: &Stat) -> [i64; 5] {
    [
        stat.st_dev as i64,
        stat.st_ino as i64,
        stat.st_size as i64,
        stat.st_mtime as i64,
        stat.st_mtime_nsec as i64,
    ]
}
