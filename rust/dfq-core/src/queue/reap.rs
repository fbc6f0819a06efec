//! Taking over from the dead.
//!
//! A stale lease is settled on behalf of its holder, under the shard's lock: the delivery goes
//! into the task's history as a crash, then the lease is removed and the task is claimable
//! again; or, if that was its last attempt, the task moves to failed/.
//!
//! A torn lease (empty, cut short, foreign) says nothing about fence or holder, and its writer
//! may yet wake up and believe that it won. So it is first replaced by a whole one of ours: the
//! writer then finds that its file has no link left, and gives up. Only then is it settled.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs;

use super::settle::Ending;
use super::{mtime_ms, FileQueue, LeaseFile, MAX_LEASE_BYTES, TORN_GRACE_MS};
use crate::error::{Error, Result};
use crate::id;
use crate::lease::{Lease, Standing};
use crate::root::Area;
use crate::scan::{self, Found};
use crate::shard::Ref;
use crate::sys::{self, Content};
use crate::time::Now;

/// What became of a look at somebody else's lease.
pub(super) enum Checked {
    /// There is no lease (any more): worth a claim.
    Free,
    /// The task is no longer pending.
    Gone,
    /// The lease counts.
    Held { until_boot_ms: Option<i64> },
}

impl FileQueue {
    /// Looks at the lease on a task, and ends it if it is stale.
    pub(super) fn check_lease(&self, entry: Ref, id: &str, now: Now) -> Result<Checked> {
        let Some(dir) = self.open_task(Area::Pending, entry.shard(), id)? else {
            return Ok(Checked::Gone);
        };
        match self.judge(&dir, now)? {
            Judged::Free => Ok(Checked::Free),
            Judged::Held(until_boot_ms) => Ok(Checked::Held { until_boot_ms }),
            Judged::Stale => {
                drop(dir);
                self.reap(id, now)
            }
        }
    }

    /// Ends the lease on a task if it is (still) stale. Returns what stands there after.
    pub(super) fn reap(&self, id: &str, now: Now) -> Result<Checked> {
        let shard = self.check_id(id)?;
        let _guard = self.root.lock(usize::from(shard))?;
        // Others may have been here first: judge again, under the lock.
        let index_shard = self.index_shard(shard);
        let Some(dir) = self.open_task(Area::Pending, index_shard, id)? else {
            return Ok(Checked::Gone);
        };
        let judged = self.judge(&dir, now)?;
        match judged {
            Judged::Free => return Ok(Checked::Free),
            Judged::Held(until_boot_ms) => return Ok(Checked::Held { until_boot_ms }),
            Judged::Stale => {}
        }
        let (lease, why) = match self.read_lease(&dir)? {
            LeaseFile::None => return Ok(Checked::Free),
            LeaseFile::Torn => (
                self.replace_torn(id, &dir, now)?,
                "a claim was cut short by a crash".to_owned(),
            ),
            LeaseFile::Lease(lease) => {
                let why = match lease.standing(
                    &self.root.process()?.me,
                    self.is_network(),
                    i64::MAX,
                    now,
                ) {
                    Standing::Stale(why) => why,
                    Standing::Held { until_boot_ms } => return Ok(Checked::Held { until_boot_ms }),
                };
                (*lease, why)
            }
        };
        let ending = Ending {
            kind: "crash",
            message: &why,
            delay_ms: 0,
            counts: true,
        };
        match self.end_lease(shard, id, &dir, &lease, &ending, now)? {
            super::Outcome::Retry => Ok(Checked::Free),
            super::Outcome::Failed => Ok(Checked::Gone),
        }
    }

    fn judge(&self, dir: &OwnedFd, now: Now) -> Result<Judged> {
        let process = self.root.process()?;
        match self.read_lease(dir)? {
            LeaseFile::None => Ok(Judged::Free),
            LeaseFile::Torn => {
                let age = self.lease_age_ms(dir)?;
                // Far in the future or long ago: the clock jumped, so the age says nothing.
                let fresh = (-TORN_GRACE_MS..TORN_GRACE_MS).contains(&age);
                Ok(if fresh {
                    Judged::Held(Some(now.boot_ms + TORN_GRACE_MS))
                } else {
                    Judged::Stale
                })
            }
            LeaseFile::Lease(lease) => {
                let network = self.is_network();
                // Only a lease from another machine needs the file's age: it costs a file.
                let mut standing = lease.standing(&process.me, network, 0, now);
                if standing
                    == (Standing::Held {
                        until_boot_ms: None,
                    })
                {
                    let age = match self.lease_age_ms(dir)? {
                        // Stamped in the future: a clock jumped, so count from when we saw it.
                        age if age < 0 => self.observed_ms(&lease, now)?,
                        age => age,
                    };
                    standing = lease.standing(&process.me, network, age, now);
                }
                Ok(match standing {
                    Standing::Stale(_) => Judged::Stale,
                    Standing::Held { until_boot_ms } => Judged::Held(until_boot_ms),
                })
            }
        }
    }

    /// How long this very lease has stood unchanged before our eyes.
    fn observed_ms(&self, lease: &Lease, now: Now) -> Result<i64> {
        const REMEMBERED: usize = 100_000;
        let beat = format!("{}@{}", lease.lease_id, lease.heartbeat_at.0);
        let mut observed = self.own()?.observed.lock();
        if observed.len() > REMEMBERED {
            observed.clear();
        }
        Ok(match observed.get(&lease.task_id) {
            Some((known, since)) if *known == beat => now.boot_ms - since,
            _ => {
                observed.insert(lease.task_id.clone(), (beat, now.boot_ms));
                0
            }
        })
    }

    /// How old lease.json is, by the file system's own clock.
    fn lease_age_ms(&self, dir: &OwnedFd) -> Result<i64> {
        match fs::statat(dir, "lease.json", fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(self.store_time_ms()? - mtime_ms(&stat)),
            Err(rustix::io::Errno::NOENT) => Ok(0),
            Err(errno) => Err(Error::io("look at", "lease.json", errno)),
        }
    }

    fn replace_torn(&self, id: &str, dir: &OwnedFd, now: Now) -> Result<Lease> {
        self.keep_evidence(id, dir)?;
        let (attempts, fence) = match scan::read_task(dir.as_fd(), id, self.settings.max_file_bytes)
        {
            Ok(Found::Task(task)) => (task.attempts, task.fence),
            Ok(_) => (0, 0),
            Err(errno) => return Err(Error::io("read task", id, errno)),
        };
        let me = &self.root.process()?.me;
        // The torn lease may have been handed out with the next fence: it counts as used.
        let fence = self.root.next_fence(fence);
        let lease = Lease::new(
            id,
            "unknown".to_owned(),
            self.chance.nonce(),
            fence,
            attempts.saturating_add(1),
            me,
            now,
        );
        let nonce = self.chance.nonce();
        self.root
            .replace(dir.as_fd(), "lease.json", &lease.to_bytes(), &nonce, false)?;
        Ok(lease)
    }

    /// Sets a foreign lease.json aside; an empty one is no evidence of anything. A file is only
    /// copied: it stays in its place until it is replaced, and then its writer sees that.
    fn keep_evidence(&self, id: &str, dir: &OwnedFd) -> Result<()> {
        match sys::read_file(dir.as_fd(), "lease.json", MAX_LEASE_BYTES) {
            Ok(Content::Whole(content)) if content.is_empty() => Ok(()),
            Ok(Content::Missing) => Ok(()),
            found => {
                let shard = self.index_shard(id::shard_of(id));
                let path = self.root.task_path(Area::Pending, shard, id);
                match found {
                    Ok(Content::Whole(content)) => self.quarantine_copy(&content, &path),
                    _ => self.quarantine_part(dir, "lease.json", &path),
                }
            }
        }
    }
}

enum Judged {
    Free,
    Held(Option<i64>),
    Stale,
}
