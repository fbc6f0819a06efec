//! Looking, without touching: get, list, stats.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs;
use rustix::io::Errno;

use super::{FileQueue, LeaseFile};
use crate::archive;
use crate::envelope::Envelope;
use crate::error::{Error, Result};
use crate::lease::Lease;
use crate::root::Area;
use crate::scan::{self, Found};
use crate::sys::{self, Content};
use crate::time::Now;

/// A task and all that is known about it.
pub struct Record {
    /// ready, delayed, blocked, leased, completed or failed.
    pub state: &'static str,
    /// The task.
    pub task: Envelope,
    /// Its holder, or the lease that finished it.
    pub lease: Option<Lease>,
    /// What the handler returned.
    pub result: Option<Vec<u8>>,
    /// When it was finished.
    pub finished_ms: Option<i64>,
    /// Unmet dependencies, and what they are: pending, failed or unknown.
    pub blocked_by: Vec<(String, &'static str)>,
}

/// Counts of a queue.
#[derive(Debug, Default, Clone)]
pub struct Counts {
    /// Claimable now.
    pub ready: u64,
    /// Not yet due.
    pub delayed: u64,
    /// With an unmet dependency.
    pub blocked: u64,
    /// Blocked by something that will not happen by itself.
    pub stuck: u64,
    /// Held.
    pub leased: u64,
    /// Done, the archive included.
    pub completed: u64,
    /// Given up.
    pub failed: u64,
    /// Set aside.
    pub quarantined: u64,
    /// Pending tasks by project.
    pub by_project: HashMap<String, u64>,
    /// Pending tasks by label.
    pub by_label: HashMap<String, u64>,
    /// When the oldest ready task was pushed.
    pub oldest_ready_ms: Option<i64>,
}

impl FileQueue {
    /// All about one task.
    pub fn get(&self, id: &str, now: Now) -> Result<Option<Record>> {
        let shard = self.check_id(id)?;
        // A task that moves between two looks is found at the second try.
        for _ in 0..3 {
            for area in [Area::Pending, Area::Completed, Area::Failed] {
                if let Some(dir) = self.open_task(area, shard, id)? {
                    if let Some(record) = self.record(area, id, &dir, now)? {
                        return Ok(Some(record));
                    }
                }
            }
        }
        self.finished_elsewhere(id)
    }

    fn record(&self, area: Area, id: &str, dir: &OwnedFd, now: Now) -> Result<Option<Record>> {
        let found = scan::read_task(dir.as_fd(), id, self.settings.max_file_bytes);
        let Found::Task(task) = found.map_err(|e| Error::io("read task", id, e))? else {
            return Ok(None);
        };
        let lease = match self.read_lease(dir)? {
            LeaseFile::Lease(lease) => Some(*lease),
            LeaseFile::None | LeaseFile::Torn => None,
        };
        let mut record = Record {
            state: area.name(),
            task: *task,
            lease,
            result: None,
            finished_ms: None,
            blocked_by: Vec::new(),
        };
        if area == Area::Pending {
            record.state = self.pending_state(&record.task, record.lease.is_some(), now)?;
            if record.state == "blocked" {
                record.blocked_by = self.unmet(&record.task.depends_on)?;
            }
        } else {
            record.finished_ms = self.finished_ms(id, dir)?;
            record.result = self.read_part(dir, "result.json")?;
        }
        Ok(Some(record))
    }

    fn pending_state(&self, task: &Envelope, leased: bool, now: Now) -> Result<&'static str> {
        if leased {
            return Ok("leased");
        }
        if !task.depends_on.is_empty() && !self.unmet(&task.depends_on)?.is_empty() {
            return Ok("blocked");
        }
        let waits = task.not_before.is_some_and(|at| at.0 > now.wall_ms);
        Ok(if waits { "delayed" } else { "ready" })
    }

    fn unmet(&self, dependencies: &[String]) -> Result<Vec<(String, &'static str)>> {
        let mut unmet = Vec::new();
        for dependency in dependencies {
            let state = self.dependency_state(dependency)?;
            if state != "completed" {
                unmet.push((dependency.clone(), state));
            }
        }
        Ok(unmet)
    }

    fn read_part(&self, dir: &OwnedFd, name: &str) -> Result<Option<Vec<u8>>> {
        match sys::read_file(dir.as_fd(), name, self.settings.max_file_bytes) {
            Ok(Content::Whole(content)) => Ok(Some(content)),
            Ok(_) => Ok(None),
            Err(errno) => Err(Error::io("read", name, errno)),
        }
    }

    /// A task that is completed without a directory: by a file of the first layout, or archived.
    fn finished_elsewhere(&self, id: &str) -> Result<Option<Record>> {
        let record = |task, result, finished_ms| Record {
            state: "completed",
            task,
            lease: None,
            result,
            finished_ms,
            blocked_by: Vec::new(),
        };
        if let Some(path) = self.root.completed_file(id) {
            let content = sys::read_file(self.root.fd(), &path, self.settings.max_file_bytes)
                .map_err(|e| Error::io("read", &path, e))?;
            if let Content::Whole(content) = content {
                let task = Envelope::parse(id, &content).ok();
                return Ok(task.map(|task| record(task, None, None)));
            }
        }
        let Some(row) = archive::find(&self.root, id)? else {
            return Ok(None);
        };
        let result = (!row.result.is_empty()).then_some(row.result);
        Ok(Envelope::parse(id, &row.task).ok().map(|mut task| {
            task.attempts = row.attempts;
            record(task, result, Some(row.finished_ms))
        }))
    }

    /// Whether a task without a directory is completed.
    pub(super) fn is_completed_elsewhere(&self, id: &str) -> Result<bool> {
        match self.root.completed_file(id) {
            Some(path) => {
                sys::exists(self.root.fd(), &path).map_err(|e| Error::io("look at", &path, e))
            }
            None => Ok(false),
        }
    }

    /// What a handler kept with the task.
    pub fn load_state(&self, id: &str) -> Result<Option<Vec<u8>>> {
        let shard = self.check_id(id)?;
        match self.find(shard, id)? {
            Some(found) => self.read_part(&found.dir, "state.json"),
            None => Ok(None),
        }
    }

    /// The ids in one shard of an area; in the flat layout, shard 0 holds all.
    pub fn list(&self, area: Area, shard: u8) -> Result<Vec<String>> {
        if self.is_flat() && shard > 0 {
            return Ok(Vec::new());
        }
        let listing = scan::list(&self.root, area, shard)?;
        let mut ids: Vec<String> = listing
            .names
            .iter()
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        if self.is_flat() && area == Area::Completed {
            ids.extend(self.completed_files()?);
        }
        Ok(ids)
    }

    fn completed_files(&self) -> Result<Vec<String>> {
        let failed = |errno| Error::io("read", "completed", errno);
        let dir = sys::open_dir(self.root.fd(), "completed").map_err(failed)?;
        let mut ids = Vec::new();
        sys::each_entry(&dir, |name, kind| {
            if let (Some(id), fs::FileType::RegularFile) = (name.strip_suffix(b".json"), kind) {
                if crate::id::is_valid(id) {
                    ids.push(String::from_utf8_lossy(id).into_owned());
                }
            }
        })
        .map_err(failed)?;
        Ok(ids)
    }

    /// Counts everything.
    pub fn stats(&self, now: Now) -> Result<Counts> {
        self.root.check_present()?;
        let shards: Vec<u8> = (0..self.root.shard_count()).map(|s| s as u8).collect();
        let parts = scan::in_parallel(shards, |shard| self.count_shard(shard, now));
        let mut total = Counts::default();
        for part in parts {
            total.absorb(part?);
        }
        total.completed += archive::count(&self.root, &self.completed_names()?)?;
        total.quarantined = self.quarantined()?.len() as u64;
        Ok(total)
    }

    /// The ids that have a directory in completed/, if there is an archive they may be in too.
    fn completed_names(&self) -> Result<HashSet<Vec<u8>>> {
        let mut names = HashSet::new();
        if archive::is_empty(&self.root)? {
            return Ok(names);
        }
        for shard in 0..self.root.shard_count() {
            let listing = scan::list(&self.root, Area::Completed, shard as u8)?;
            names.extend(listing.names.iter().map(<[u8]>::to_vec));
        }
        Ok(names)
    }

    /// Deletes archived tasks: the days that ended before `before_ms`, or all.
    pub fn purge_archive(&self, before_ms: Option<i64>) -> Result<u64> {
        let _guard = self.root.lock(crate::lock::QUEUE)?;
        archive::purge(&self.root, before_ms)
    }

    fn count_shard(&self, shard: u8, now: Now) -> Result<Counts> {
        let mut counts = Counts::default();
        let count = |area| scan::list(&self.root, area, shard).map(|l| l.names.count() as u64);
        counts.failed = count(Area::Failed)?;
        counts.completed = count(Area::Completed)?;
        if self.is_flat() {
            counts.completed += self.completed_files()?.len() as u64;
        }
        let path = self.root.shard_path(Area::Pending, shard);
        let dir = match sys::open_dir_handle(self.root.fd(), &path) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(counts),
            Err(errno) => return Err(Error::io("open", &path, errno)),
        };
        for id in self.list(Area::Pending, shard)? {
            // By their paths, without a handle on the task: nothing is changed here.
            let found = scan::read_task_in(dir.as_fd(), &id, self.settings.max_file_bytes);
            let Found::Task(task) = found.map_err(|e| Error::io("read task", &id, e))? else {
                continue;
            };
            let leased = sys::exists(dir.as_fd(), &format!("{id}/lease.json"))
                .map_err(|e| Error::io("look at", "lease.json", e))?;
            counts.add(&task, self.pending_state(&task, leased, now)?);
            if !leased && !task.depends_on.is_empty() {
                let unmet = self.unmet(&task.depends_on)?;
                counts.stuck += u64::from(unmet.iter().any(|(_, state)| *state != "pending"));
            }
        }
        Ok(counts)
    }
}

impl Counts {
    fn add(&mut self, task: &Envelope, state: &str) {
        match state {
            "leased" => self.leased += 1,
            "blocked" => self.blocked += 1,
            "delayed" => self.delayed += 1,
            _ => {
                self.ready += 1;
                if let Some(at) = task.created_at {
                    self.oldest_ready_ms = Some(self.oldest_ready_ms.map_or(at.0, |o| o.min(at.0)));
                }
            }
        }
        if let Some(project) = &task.project {
            *self.by_project.entry(project.clone()).or_default() += 1;
        }
        for label in &task.labels {
            *self.by_label.entry(label.clone()).or_default() += 1;
        }
    }

    fn absorb(&mut self, other: Counts) {
        self.ready += other.ready;
        self.delayed += other.delayed;
        self.blocked += other.blocked;
        self.stuck += other.stuck;
        self.leased += other.leased;
        self.completed += other.completed;
        self.failed += other.failed;
        for (key, count) in other.by_project {
            *self.by_project.entry(key).or_default() += count;
        }
        for (key, count) in other.by_label {
            *self.by_label.entry(key).or_default() += count;
        }
        self.oldest_ready_ms = self
            .oldest_ready_ms
            .into_iter()
            .chain(other.oldest_ready_ms)
            .min();
    }
}
