//! Claim. No lock: creating `lease.json` exclusively is check and act in one.
//!
//! ```text
//! open pending/shard/id · create lease.json O_EXCL (lost: somebody else holds it) ·
//! read task.json · write the lease · fstat it (no link left: it was taken for torn and
//! replaced, so the claim is lost)
//! ```
//!
//! The task is read *after* the create: what it says about fences and attempts can't change
//! while the lease is ours. A crash in between leaves an empty lease, which others replace
//! after a moment. No fsync: losing a claim only delivers again.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::{error_entry, FileQueue, LEASE_CHECK_MS, TORN_GRACE_MS};
use crate::archive;
use crate::envelope::Envelope;
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::host::Identity;
use crate::id;
use crate::lease::Lease;
use crate::pending::Pending;
use crate::root::Area;
use crate::scan::{self, Found};
use crate::shard::{Place, Ref};
use crate::sys;
use crate::time::Now;

/// What a claimer wants.
pub struct ClaimRequest {
    /// The claimer's name.
    pub worker_id: String,
    /// At most so many tasks.
    pub limit: usize,
    /// How long a lease lives without a heartbeat.
    pub lease_ms: i64,
    /// Which tasks.
    pub filter: Filter,
}

/// A task that is ours now.
pub struct Claimed {
    /// The task.
    pub task: Envelope,
    /// The lease on it.
    pub lease: Lease,
}

enum Try {
    Won(Box<Claimed>, fs::Stat),
    Held,
    Gone,
    NotBefore(i64),
    Waits(String),
    Unwanted(Box<Envelope>),
    Finished,
    Damaged(String),
}

impl FileQueue {
    /// Takes up to `limit` ready tasks, the highest priority first.
    pub fn claim(&self, request: &ClaimRequest, now: Now) -> Result<Vec<Claimed>> {
        let own = self.own()?;
        let mut pending = own.pending.lock();
        let mut won = Vec::new();
        let outcome = self.claim_into(&mut won, &mut pending, request, now);
        // Another thread may have slept through the news that this one took in.
        let left = pending.index.has_ready();
        own.bell.leave(left, pending.index.take_news() && left);
        match outcome {
            // What was won so far is ours: hand it out, the error will come again.
            Err(error) if won.is_empty() => Err(error),
            _ => Ok(won),
        }
    }

    fn claim_into(
        &self,
        won: &mut Vec<Claimed>,
        pending: &mut Pending,
        request: &ClaimRequest,
        now: Now,
    ) -> Result<()> {
        pending.refresh(&self.root, now, false)?;
        if !request.filter.is_empty() {
            pending.read_unread(&self.root, true)?;
        }
        self.promote(pending, now)?;
        if pending.is_paused(&self.root)? {
            return Ok(());
        }
        let me = &self.root.process()?.me;
        let mut looks = 0;
        while won.len() < request.limit {
            let Some(entry) = pending.index.pop(&request.filter, || self.chance.next()) else {
                // Nothing left that is known: look properly before saying so, and then once
                // more at the leases that this look ran into.
                looks += 1;
                match looks {
                    1 => {
                        self.root.check_present()?;
                        pending.refresh(&self.root, now, true)?;
                    }
                    2 => {}
                    _ => break,
                }
                self.promote(pending, now)?;
                continue;
            };
            let id = pending.index.name(entry);
            let mut tried = self.try_claim(entry, &id, request, me, now);
            if tried.as_ref().is_err_and(Error::is_out_of_handles) && self.own()?.kept.clear() {
                tried = self.try_claim(entry, &id, request, me, now);
            }
            if let Err(error) = tried.and_then(|o| self.note(pending, entry, &id, o, won, now)) {
                pending.index.set_ready(entry);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Brings back into the order what time has made claimable.
    fn promote(&self, pending: &mut Pending, now: Now) -> Result<()> {
        pending.index.promote_due(now.wall_ms);
        while let Some(foreign) = pending.foreign.pop() {
            if let Err(error) = self.quarantine(&foreign.path, foreign.reason) {
                pending.foreign.push(foreign);
                return Err(error);
            }
        }
        while let Some(stray) = pending.strays.pop() {
            if let Err(error) = self.adopt(&stray) {
                pending.strays.push(stray);
                return Err(error);
            }
        }
        let damaged = pending.index.promote_damaged(now.boot_ms);
        for (done, entry) in damaged.iter().enumerate() {
            if let Err(error) = self.look_at_damaged(pending, *entry) {
                for entry in &damaged[done..] {
                    pending
                        .index
                        .set_damaged(*entry, now.boot_ms + TORN_GRACE_MS);
                }
                return Err(error);
            }
        }
        let leased = pending.index.leases_to_check(now.boot_ms);
        for (done, entry) in leased.iter().enumerate() {
            if let Err(error) = self.look_at_lease(pending, *entry, now) {
                for entry in &leased[done..] {
                    if pending.index.place(*entry) == Place::Leased {
                        let next = now.boot_ms + LEASE_CHECK_MS;
                        pending.index.set_leased(*entry, next);
                    }
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn look_at_lease(&self, pending: &mut Pending, entry: Ref, now: Now) -> Result<()> {
        // An entry may be due twice; the first look may have removed it.
        if pending.index.place(entry) != Place::Leased {
            return Ok(());
        }
        let id = pending.index.name(entry);
        match self.check_lease(entry, &id, now)? {
            super::reap::Checked::Free => pending.index.set_back(entry),
            super::reap::Checked::Gone => pending.index.remove(entry),
            super::reap::Checked::Held { until_boot_ms } => {
                let next = now.boot_ms + LEASE_CHECK_MS;
                let next = until_boot_ms.map_or(next, |until| until.min(next));
                pending.index.set_leased(entry, next);
            }
        }
        Ok(())
    }

    /// Moves a task that a script put directly below pending/ to where it belongs.
    fn adopt(&self, id: &str) -> Result<()> {
        let shard = self.check_id(id)?;
        self.root.ensure_shard(Area::Pending, shard)?;
        let stray = format!("{}/{id}", Area::Pending.name());
        let target = self.root.task_path(Area::Pending, shard, id);
        match sys::rename_new(self.root.fd(), &stray, &target) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::EXIST) => {
                self.quarantine(stray.as_bytes(), "a task of this id is pending already")
            }
            Err(errno) => Err(Error::io("move", &stray, errno)),
        }
    }

    fn note(
        &self,
        pending: &mut Pending,
        entry: Ref,
        id: &str,
        outcome: Try,
        won: &mut Vec<Claimed>,
        now: Now,
    ) -> Result<()> {
        match outcome {
            Try::Won(claimed, _) => {
                pending
                    .index
                    .set_leased(entry, claimed.lease.expires_boot_ms);
                won.push(*claimed);
            }
            // Not looked at yet: due at once, but only when there is nothing better to do.
            Try::Held => pending.index.set_leased(entry, now.boot_ms),
            Try::Gone | Try::Finished => pending.index.remove(entry),
            Try::NotBefore(at) => pending.index.set_delayed(entry, at),
            Try::Waits(dependency) => {
                pending.await_completion(&self.root, entry, &dependency)?;
                // It may have been completed before the watch was set.
                if self.dependency_state(&dependency)? == "completed" {
                    pending.index.unblock(&dependency);
                }
            }
            Try::Unwanted(task) => {
                pending.index.learn(entry, &task);
                pending.index.set_ready(entry);
            }
            Try::Damaged(what) => {
                // A script may be writing it just now; look again in a moment.
                let wrong_place = !self.is_flat() && id::shard_of(id) != entry.shard();
                if wrong_place || what == OWNER {
                    let path = self.root.task_path(Area::Pending, entry.shard(), id);
                    self.quarantine(path.as_bytes(), &what)?;
                    pending.index.remove(entry);
                } else {
                    pending
                        .index
                        .set_damaged(entry, now.boot_ms + TORN_GRACE_MS);
                }
            }
        }
        Ok(())
    }

    fn look_at_damaged(&self, pending: &mut Pending, entry: Ref) -> Result<()> {
        if pending.index.place(entry) != Place::Damaged {
            return Ok(());
        }
        let id = pending.index.name(entry);
        let limit = self.settings.max_file_bytes;
        let look = || scan::read_task_at(&self.root, Area::Pending, entry.shard(), &id, limit);
        let mut found = look()?;
        let mut guard = None;
        if matches!(found, Found::Damaged(_)) {
            // It may have been completed and claimed just now: decide under the lock.
            guard = Some(self.root.lock(usize::from(id::shard_of(&id)))?);
            found = look()?;
        }
        match found {
            Found::Task(_) => pending.index.set_ready(entry),
            Found::Gone => pending.index.remove(entry),
            Found::Damaged(what) => {
                let path = self.root.task_path(Area::Pending, entry.shard(), &id);
                self.quarantine(path.as_bytes(), &what)?;
                pending.index.remove(entry);
            }
        }
        drop(guard);
        Ok(())
    }

    fn try_claim(
        &self,
        entry: Ref,
        id: &str,
        request: &ClaimRequest,
        me: &Identity,
        now: Now,
    ) -> Result<Try> {
        let path = self.root.task_path(Area::Pending, entry.shard(), id);
        let dir = match sys::open_dir_handle(self.root.fd(), &path) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(Try::Gone),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Ok(Try::Damaged("it is not a directory".into()))
            }
            Err(errno) => return Err(Error::io("open", &path, errno)),
        };
        let shard = id::shard_of(id);
        if !self.is_flat() && shard != entry.shard() {
            let right = id::shard_name(shard);
            return Ok(Try::Damaged(format!("it belongs into the shard {right}")));
        }
        let owner = fs::fstat(&dir)
            .map_err(|e| Error::io("look at", &path, e))?
            .st_uid;
        if !self.root.trusts_owner(owner) {
            return Ok(Try::Damaged(OWNER.into()));
        }
        let file = match sys::create_exclusive(dir.as_fd(), "lease.json") {
            Ok(file) => file,
            Err(Errno::EXIST) => return Ok(Try::Held),
            Err(Errno::NOENT) => return Ok(Try::Gone),
            Err(errno) => return Err(Error::io("claim", &path, errno)),
        };
        let outcome = self.fill_lease(entry, id, &dir, &file, request, me, now);
        match &outcome {
            Ok(Try::Won(claimed, stat)) if !self.root.is_network() => {
                self.own()?.kept.keep(&claimed.lease, shard, file, *stat);
            }
            Ok(Try::Won(..) | Try::Finished | Try::Gone) => {}
            _ => self.withdraw(id, &dir, &file)?,
        }
        outcome
    }

    /// With the empty lease in place: is the task for us, and if so, whose is it?
    #[allow(clippy::too_many_arguments)]
    fn fill_lease(
        &self,
        entry: Ref,
        id: &str,
        dir: &OwnedFd,
        file: &OwnedFd,
        request: &ClaimRequest,
        me: &Identity,
        now: Now,
    ) -> Result<Try> {
        let limit = self.settings.max_file_bytes;
        let found =
            scan::read_task(dir.as_fd(), id, limit).map_err(|e| Error::io("read task", id, e))?;
        let task = match found {
            Found::Task(task) => task,
            Found::Gone => return Ok(Try::Gone),
            Found::Damaged(what) => return Ok(Try::Damaged(what)),
        };
        if !request.filter.matches(&task) {
            return Ok(Try::Unwanted(task));
        }
        if let Some(at) = task.not_before.filter(|at| at.0 > now.wall_ms) {
            return Ok(Try::NotBefore(at.0));
        }
        let attempt = task.attempts.saturating_add(1);
        let fence = self.root.next_fence(task.fence);
        let worker_id = request.worker_id.clone();
        let lease_id = self.chance.nonce();
        let mut lease = Lease::new(id, worker_id, lease_id, fence, attempt, me, now);
        lease.renew(request.lease_ms, now);
        let verdict = self.verdict(&task, now);
        if verdict.is_none() {
            if let Some(dependency) = self.first_unmet(&task.depends_on)? {
                return Ok(Try::Waits(dependency));
            }
        }
        sys::write_all(file, &lease.to_bytes()).map_err(|e| Error::io("claim task", id, e))?;
        let stat = fs::fstat(file).map_err(|e| Error::io("claim task", id, e))?;
        if stat.st_nlink == 0 {
            return Ok(Try::Gone);
        }
        if let Some((kind, message)) = verdict {
            let shard = self.check_id(id)?;
            let _guard = self.root.lock(usize::from(shard))?;
            let mut task = task;
            task.fence = task.fence.max(fence);
            lease.attempt = task.attempts;
            let error = error_entry(&lease, kind, &message, now);
            self.give_up(entry.shard(), id, dir, &mut task, error, now)?;
            return Ok(Try::Finished);
        }
        Ok(Try::Won(Box::new(Claimed { task: *task, lease }), stat))
    }

    /// Why a task is not to be delivered any more, if so.
    fn verdict(&self, task: &Envelope, now: Now) -> Option<(&'static str, String)> {
        if task.expires_at.is_some_and(|at| at.0 <= now.wall_ms) {
            return Some((
                "expired",
                "its time to live was over before it was started".into(),
            ));
        }
        let allowed = task.attempts_allowed(self.settings.max_attempts);
        if task.attempts >= allowed {
            return Some(("error", format!("all {allowed} attempts are used up")));
        }
        None
    }

    /// Takes back an empty lease of ours.
    fn withdraw(&self, id: &str, dir: &OwnedFd, file: &OwnedFd) -> Result<()> {
        let shard = self.check_id(id)?;
        // Under the lock: it may have been replaced as torn, and then it is not ours to remove.
        let _guard = self.root.lock(usize::from(shard))?;
        if fs::fstat(file).is_ok_and(|stat| stat.st_nlink > 0) {
            fs::unlinkat(dir, "lease.json", AtFlags::empty())
                .map_err(|e| Error::io("release task", id, e))?;
        }
        Ok(())
    }

    /// The first dependency that is not completed.
    fn first_unmet(&self, dependencies: &[String]) -> Result<Option<String>> {
        for dependency in dependencies {
            if self.dependency_state(dependency)? != "completed" {
                return Ok(Some(dependency.clone()));
            }
        }
        Ok(None)
    }

    /// completed, pending, failed or unknown.
    pub(super) fn dependency_state(&self, id: &str) -> Result<&'static str> {
        let shard = self.check_id(id)?;
        if let Some(area) = self.area_of(shard, id)? {
            return Ok(area.name());
        }
        let archived = archive::find(&self.root, id)?.is_some();
        Ok(if archived { "completed" } else { "unknown" })
    }
}

const OWNER: &str = "it belongs to another user; chown it and move it back";
