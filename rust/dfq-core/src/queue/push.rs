//! Push. When it returns, the task survives a power cut.
//!
//! One task:   mkdir tmp/x · create, write, fsync tmp/x/task.json · fsync tmp/x ·
//!             rename tmp/x → pending/shard/id · fsync pending/shard.
//! Many tasks: the same without the fsyncs, but syncfs before the renames (so that no task can
//!             appear torn) and syncfs after them (so that none can disappear).
//! A crash before the rename leaves rubbish in tmp/ for the sweeper; after it, the task is there.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::FileQueue;
use crate::envelope::{Envelope, MAX_HISTORY_BYTES, NORMAL_PRIORITY};
use crate::error::{Error, Kind, Result};
use crate::lock;
use crate::root::Area;
use crate::scan::{self, Found};
use crate::sys;

/// Below this many tasks, syncing each is cheaper than syncing the whole file system.
const GROUP_COMMIT: usize = 4;
/// A dependency chain is followed this far when looking for a cycle.
const MAX_CHAIN: usize = 100_000;

/// A task to be stored.
pub struct NewTask {
    /// The task.
    pub envelope: Envelope,
    /// Whether somebody else may have chosen the same id.
    pub id_given: bool,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    /// It is stored.
    Created,
    /// A task of this id is there already, in this area; nothing was changed.
    Exists(Area),
}

struct Built {
    scratch: String,
    shard: u8,
}

impl FileQueue {
    /// Stores tasks, durably. Duplicates are reported, the others stored.
    pub fn push(&self, tasks: &[NewTask]) -> Result<Vec<Pushed>> {
        // Two pushes that would close a cycle together must see each other.
        let linked = tasks
            .iter()
            .any(|task| !task.envelope.depends_on.is_empty());
        let _graph = if linked {
            Some(self.root.lock(lock::GRAPH)?)
        } else {
            None
        };
        if linked {
            self.refuse_cycles(tasks)?;
        }
        self.mark_lanes(tasks)?;
        let group = tasks.len() >= GROUP_COMMIT && cfg!(target_os = "linux");
        let mut built = Vec::with_capacity(tasks.len());
        for task in tasks {
            match self.build(task, !group) {
                Ok(one) => built.push(one),
                Err(error) => {
                    built.iter().for_each(|b| self.discard(&b.scratch));
                    return Err(error);
                }
            }
        }
        if group {
            self.sync_everything().inspect_err(|_| {
                built.iter().for_each(|b| self.discard(&b.scratch));
            })?;
        }
        let mut results = Vec::with_capacity(tasks.len());
        let mut touched = HashSet::new();
        for (task, one) in tasks.iter().zip(&built) {
            let placed = self.place(task, one);
            if !matches!(placed, Ok(Pushed::Created)) {
                self.discard(&one.scratch);
            }
            match placed {
                Ok(Pushed::Created) => {
                    touched.insert(one.shard);
                    results.push(Pushed::Created);
                }
                Ok(exists) => results.push(exists),
                Err(error) => {
                    built[results.len()..]
                        .iter()
                        .for_each(|b| self.discard(&b.scratch));
                    return Err(partly(error, results.len(), tasks.len()));
                }
            }
        }
        let synced = if group {
            self.sync_everything()
        } else {
            touched
                .iter()
                .try_for_each(|shard| self.sync_dir(&self.root.shard_path(Area::Pending, *shard)))
        };
        synced.map_err(|error| partly(error, results.len(), tasks.len()))?;
        Ok(results)
    }

    fn build(&self, task: &NewTask, durable: bool) -> Result<Built> {
        let id = &task.envelope.id;
        let shard = self.check_id(id)?;
        let bytes = task.envelope.to_bytes();
        let limit = self
            .settings
            .max_file_bytes
            .saturating_sub(MAX_HISTORY_BYTES);
        if bytes.len() > limit {
            return Err(Error::new(
                Kind::Invalid,
                format!(
                    "task {id:?} is {} bytes with all that belongs to it; this queue takes {limit}. \
                     Give it fewer dependencies or labels, or a smaller payload",
                    bytes.len()
                ),
            ));
        }
        // A shard is synced into pending/ before a task relies on it.
        if durable {
            self.ensure_durable_shard(shard)?;
        } else {
            self.root.ensure_shard(Area::Pending, shard)?;
        }
        let scratch = self.root.scratch_path(&self.chance.nonce());
        let file_path = format!("{scratch}/task.json");
        let root = self.root.fd();
        let attempt = || -> rustix::io::Result<()> {
            match fs::mkdirat(root, &scratch, sys::DIR_MODE) {
                Err(Errno::NOENT) => {
                    // Somebody deleted tmp/.
                    sys::ensure_dir(root, "tmp")?;
                    fs::mkdirat(root, &scratch, sys::DIR_MODE)?;
                }
                other => other?,
            }
            let file = sys::create_exclusive(root, &file_path)?;
            sys::write_all(&file, &bytes)?;
            if durable {
                sys::sync(&file)?;
                drop(file);
                sys::sync(&sys::open_dir(root, &scratch)?)?;
            }
            Ok(())
        };
        attempt().map_err(|errno| {
            self.discard(&scratch);
            Error::io("store task", id, errno)
        })?;
        Ok(Built { scratch, shard })
    }

    fn place(&self, task: &NewTask, one: &Built) -> Result<Pushed> {
        let id = &task.envelope.id;
        // With a given id, an ack of the same id may be moving it: look and rename under the lock.
        let _guard = if task.id_given {
            Some(self.root.lock(usize::from(one.shard))?)
        } else {
            None
        };
        if task.id_given {
            if let Some(area) = self.area_of(one.shard, id)? {
                return Ok(Pushed::Exists(area));
            }
        }
        let target = self.root.task_path(Area::Pending, one.shard, id);
        let mut result = sys::rename_new(self.root.fd(), &one.scratch, &target);
        if result == Err(Errno::NOENT) {
            self.root.check_present()?;
            self.root.forget_shards();
            self.ensure_durable_shard(one.shard)?;
            result = sys::rename_new(self.root.fd(), &one.scratch, &target);
        }
        match result {
            Ok(()) => Ok(Pushed::Created),
            Err(Errno::EXIST) => Ok(Pushed::Exists(Area::Pending)),
            Err(errno) => Err(Error::io("store task", id, errno)),
        }
    }

    /// Where a task of this id stands. Archived ids may be used again.
    pub(super) fn area_of(&self, shard: u8, id: &str) -> Result<Option<Area>> {
        for area in [Area::Pending, Area::Completed, Area::Failed] {
            let path = self.root.task_path(area, shard, id);
            let there = sys::exists(self.root.fd(), &path)
                .map_err(|errno| Error::io("look at", &path, errno))?;
            if there {
                return Ok(Some(area));
            }
        }
        Ok(self.is_completed_elsewhere(id)?.then_some(Area::Completed))
    }

    fn discard(&self, scratch: &str) {
        // Best effort: the sweeper takes what stays.
        let _ = fs::unlinkat(
            self.root.fd(),
            format!("{scratch}/task.json"),
            AtFlags::empty(),
        );
        let _ = fs::unlinkat(self.root.fd(), scratch, AtFlags::REMOVEDIR);
    }

    #[cfg(target_os = "linux")]
    fn sync_everything(&self) -> Result<()> {
        sys::sync_filesystem(self.root.handle())
            .map_err(|errno| Error::io("sync", self.root.path(), errno))
    }

    #[cfg(not(target_os = "linux"))]
    fn sync_everything(&self) -> Result<()> {
        Ok(())
    }

    /// Notes which priorities other than normal are in use, so that a claimer knows whether it
    /// has to read envelopes to put tasks in order; and whether tasks may expire.
    fn mark_lanes(&self, tasks: &[NewTask]) -> Result<()> {
        let mut lanes: HashSet<String> = HashSet::new();
        for NewTask { envelope, .. } in tasks {
            if envelope.priority != NORMAL_PRIORITY {
                lanes.insert(format!("lanes/{}", envelope.priority));
            }
            if envelope.expires_at.is_some() {
                lanes.insert("lanes/ttl".to_owned());
            }
        }
        for lane in lanes {
            let mut result = sys::create_exclusive(self.root.fd(), &lane).map(drop);
            if result == Err(Errno::NOENT) {
                // Derived, so it may have been deleted.
                sys::ensure_dir(self.root.fd(), "lanes")
                    .map_err(|e| Error::io("make", "lanes", e))?;
                result = sys::create_exclusive(self.root.fd(), &lane).map(drop);
            }
            match result {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(Error::io("write", &lane, errno)),
            }
        }
        Ok(())
    }

    /// Follows the dependencies of new tasks through pending ones; coming back to a new task
    /// is a cycle.
    fn refuse_cycles(&self, tasks: &[NewTask]) -> Result<()> {
        // A duplicate is not going to be stored: what it says does not count.
        let mut new: HashMap<&str, &[String]> = HashMap::with_capacity(tasks.len());
        for NewTask { envelope, id_given } in tasks {
            let shard = self.check_id(&envelope.id)?;
            if !id_given || self.area_of(shard, &envelope.id)?.is_none() {
                new.entry(&envelope.id).or_insert(&envelope.depends_on);
            }
        }
        for (&start, dependencies) in &new {
            let mut remaining: Vec<String> = dependencies.to_vec();
            let mut seen: HashSet<String> = HashSet::new();
            while let Some(next) = remaining.pop() {
                if next == start {
                    return Err(Error::new(
                        Kind::Cycle,
                        format!("task {start:?} would wait for itself, through its dependencies"),
                    ));
                }
                if !seen.insert(next.clone()) {
                    continue;
                }
                if seen.len() > MAX_CHAIN {
                    return Err(Error::new(
                        Kind::Invalid,
                        format!("task {start:?} depends on more than {MAX_CHAIN} tasks"),
                    ));
                }
                match new.get(next.as_str()) {
                    Some(more) => remaining.extend(more.iter().cloned()),
                    None => remaining.extend(self.dependencies_of(&next)?),
                }
            }
        }
        Ok(())
    }

    fn dependencies_of(&self, id: &str) -> Result<Vec<String>> {
        let shard = self.check_id(id)?;
        let limit = self.settings.max_file_bytes;
        // A failed one counts: it may be requeued.
        let dir = match self.open_task(Area::Pending, shard, id)? {
            None => self.open_task(Area::Failed, shard, id)?,
            dir => dir,
        };
        let Some(dir) = dir else {
            return Ok(Vec::new());
        };
        match scan::read_task(dir.as_fd(), id, limit) {
            Ok(Found::Task(task)) => Ok(task.depends_on),
            Ok(_) => Ok(Vec::new()),
            Err(errno) => Err(Error::io("read task", id, errno)),
        }
    }
}

fn partly(error: Error, stored: usize, of: usize) -> Error {
    let told = if of == 1 {
        "the task may have been stored all the same; push it again with the same id".to_owned()
    } else {
        format!("{stored} of {of} tasks may have been stored; push again with the same ids")
    };
    Error::new(error.kind, format!("{}. {told}", error.message))
}
