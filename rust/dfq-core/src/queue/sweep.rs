//! The sweeper: puts right what crashes left behind, and folds up what is finished.
//!
//! Any worker may run it at any time, several at once: each step is one that a crash between
//! two steps leaves harmless. Archiving: append and fsync the record, then delete the
//! directory; after a crash in between, the next sweep finds the record and only deletes.

use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::reap::Checked;
use super::{mtime_ms, FileQueue, LeaseFile};
use crate::archive::{self, Row};
use crate::error::{Error, Result};
use crate::host::{self, Life};
use crate::id;
use crate::lock;
use crate::root::Area;
use crate::scan::{self, Found};
use crate::sys;
use crate::time::Now;

/// Rubbish whose maker can't be judged is removed after a day.
const RUBBISH_MS: i64 = 86_400_000;
/// So many tasks are archived at a time, under one sync.
const ARCHIVE_LOT: usize = 500;

/// What to do with completed tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// Nothing.
    Keep,
    /// Fold those older than this many milliseconds into the archive.
    Archive(i64),
    /// Delete those older than this many milliseconds.
    Drop(i64),
}

/// What a sweep did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SweepReport {
    /// Leases ended on behalf of the dead.
    pub expired_leases: u64,
    /// Tasks moved to failed/: attempts used up, or their time was over.
    pub failed: u64,
    /// Things removed from tmp/.
    pub temporary_removed: u64,
    /// Things set aside.
    pub quarantined: u64,
    /// Completed tasks folded into the archive.
    pub archived: u64,
    /// Completed tasks deleted.
    pub dropped: u64,
}

impl FileQueue {
    /// Sweeps the queue.
    pub fn sweep(&self, retention: Retention, now: Now) -> Result<SweepReport> {
        self.root.check_present()?;
        let mut report = SweepReport::default();
        let expiring = sys::exists(self.root.fd(), "lanes/ttl")
            .map_err(|e| Error::io("look at", "lanes/ttl", e))?;
        for shard in 0..self.root.shard_count() {
            self.sweep_shard(shard as u8, expiring, now, &mut report)?;
        }
        self.sweep_rubbish(&mut report)?;
        match retention {
            Retention::Keep => {}
            Retention::Archive(age) => report.archived = self.retire(age, true, now)?,
            Retention::Drop(age) => report.dropped = self.retire(age, false, now)?,
        }
        Ok(report)
    }

    fn sweep_shard(
        &self,
        shard: u8,
        expiring: bool,
        now: Now,
        report: &mut SweepReport,
    ) -> Result<()> {
        let listing = scan::list(&self.root, Area::Pending, shard)?;
        for (name, reason) in listing.foreign {
            self.quarantine(&scan::foreign_path(&self.root, shard, &name), reason)?;
            report.quarantined += 1;
        }
        for name in listing.names.iter() {
            let id = String::from_utf8_lossy(name);
            let lease = format!(
                "{}/lease.json",
                self.root.task_path(Area::Pending, shard, &id)
            );
            let held =
                sys::exists(self.root.fd(), &lease).map_err(|e| Error::io("look at", &lease, e))?;
            if held {
                self.sweep_lease(&id, now, report)?;
            } else if expiring {
                self.sweep_expired(shard, &id, now, report)?;
            }
        }
        Ok(())
    }

    fn sweep_lease(&self, id: &str, now: Now, report: &mut SweepReport) -> Result<()> {
        match self.reap(id, now)? {
            Checked::Held { .. } => {}
            Checked::Free => report.expired_leases += 1,
            Checked::Gone => {
                let shard = self.check_id(id)?;
                if self.open_task(Area::Failed, shard, id)?.is_some() {
                    report.expired_leases += 1;
                    report.failed += 1;
                }
            }
        }
        Ok(())
    }

    fn sweep_expired(&self, shard: u8, id: &str, now: Now, report: &mut SweepReport) -> Result<()> {
        let limit = self.settings.max_file_bytes;
        let found = scan::read_task_at(&self.root, Area::Pending, shard, id, limit)?;
        let over = matches!(&found, Found::Task(task)
            if task.expires_at.is_some_and(|at| at.0 <= now.wall_ms));
        if over {
            let why = "its time to live was over before it was started";
            match self.fail(id, why, "expired", false, now) {
                Ok(()) => report.failed += 1,
                // Somebody was quicker, or claimed it in time.
                Err(error) if error.kind == crate::error::Kind::WrongState => {}
                Err(error) if error.kind == crate::error::Kind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes what crashed processes left in tmp/. The names say who made them.
    fn sweep_rubbish(&self, report: &mut SweepReport) -> Result<()> {
        let failed = |errno| Error::io("read", "tmp", errno);
        let dir = match sys::open_dir(self.root.fd(), "tmp") {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        };
        let mut names = Vec::new();
        sys::each_entry(&dir, |name, _| {
            names.push(String::from_utf8_lossy(name).into_owned())
        })
        .map_err(failed)?;
        if names.is_empty() {
            return Ok(());
        }
        let store_ms = self.store_time_ms()?;
        for name in names {
            let stat = match fs::statat(dir.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(failed(errno)),
            };
            if self.maker_is_gone(&name)? || store_ms - mtime_ms(&stat) > RUBBISH_MS {
                self.delete_dir(&format!("tmp/{name}"))?;
                report.temporary_removed += 1;
            }
        }
        Ok(())
    }

    fn maker_is_gone(&self, name: &str) -> Result<bool> {
        let me = &self.root.process()?.me;
        let mut parts = name.split('-').map(|part| part.parse::<u64>().ok());
        let (Some(Some(namespace)), Some(Some(pid)), Some(Some(start))) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Ok(false);
        };
        // Over a network, the numbers may be those of another machine.
        if self.is_network() || Some(namespace) != me.pid_namespace {
            return Ok(false);
        }
        Ok(u32::try_from(pid).is_ok_and(|pid| host::life_of(pid, Some(start)) == Life::Gone))
    }

    /// Archives or deletes completed tasks older than `age_ms`.
    fn retire(&self, age_ms: i64, into_archive: bool, now: Now) -> Result<u64> {
        let mut retired = 0;
        let mut lot: Vec<(String, Row)> = Vec::new();
        for shard in 0..self.root.shard_count() {
            for id in self.list(Area::Completed, shard as u8)? {
                let Some(row) = self.retirable(&id, now.wall_ms - age_ms)? else {
                    continue;
                };
                if into_archive {
                    lot.push((id, row));
                    if lot.len() == ARCHIVE_LOT {
                        retired += self.archive_lot(&mut lot)?;
                    }
                } else {
                    retired += u64::from(self.remove(Area::Completed, &id, false)?);
                }
            }
        }
        Ok(retired + self.archive_lot(&mut lot)?)
    }

    fn retirable(&self, id: &str, before_ms: i64) -> Result<Option<Row>> {
        let shard = id::shard_of(id);
        let Some(dir) = self.open_task(Area::Completed, shard, id)? else {
            return Ok(None);
        };
        let finished_ms = self.finished_ms(id, &dir)?.unwrap_or(0);
        if finished_ms > before_ms {
            return Ok(None);
        }
        let limit = self.settings.max_file_bytes;
        let read = |name| match sys::read_file(dir.as_fd(), name, limit) {
            Ok(sys::Content::Whole(content)) => Ok(Some(content)),
            Ok(_) => Ok(None),
            Err(errno) => Err(Error::io("read", name, errno)),
        };
        let (worker_id, fence, attempts) = match self.read_lease(&dir)? {
            LeaseFile::Lease(lease) => (lease.worker_id, lease.fence, lease.attempt),
            _ => (String::new(), 0, 0),
        };
        Ok(read("task.json")?.map(|task| Row {
            id: id.to_owned(),
            finished_ms,
            worker_id,
            fence,
            attempts,
            task,
            result: Vec::new(),
        }))
        .and_then(|row| match row {
            Some(mut row) => {
                row.result = read("result.json")?.unwrap_or_default();
                Ok(Some(row))
            }
            None => Ok(None),
        })
    }

    fn archive_lot(&self, lot: &mut Vec<(String, Row)>) -> Result<u64> {
        if lot.is_empty() {
            return Ok(0);
        }
        let _guard = self.root.lock(lock::QUEUE)?;
        // Another sweeper may have archived some of them meanwhile.
        let mut rows = Vec::with_capacity(lot.len());
        for (id, row) in lot.drain(..) {
            if self
                .open_task(Area::Completed, id::shard_of(&id), &id)?
                .is_some()
            {
                rows.push(row);
            }
        }
        // A crash between append and delete left some in the archive: those are only deleted.
        let known = archive::already_there(&self.root, &rows)?;
        let (_, fresh): (Vec<Row>, Vec<Row>) = rows
            .iter()
            .cloned()
            .partition(|row| known.contains(&row.id));
        archive::append(&self.root, &fresh)?;
        let mut archived = 0;
        for row in rows {
            archived += u64::from(self.remove(Area::Completed, &row.id, false)?);
        }
        Ok(archived)
    }
}
