//! Keeping the pending index up to date: by inotify, else by the directories' mtimes.
//!
//! A shard whose mtime has not moved is not read again. A change in the same clock tick as the
//! read would leave the mtime as it was, so a shard is trusted only once it was read a tick
//! after its mtime, or after that was first seen. Giving a task back touches its shard, so that this finds it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::id;
use crate::index::Index;
use crate::layout::Layout;
use crate::root::{Area, Root};
use crate::scan::{self, Found};
use crate::shard::{Place, Ref};
use crate::sys;
use crate::time::Now;
use crate::view::{mtime_of, View};
use crate::watch::{Event, Target, Watch};

/// Without inotify, a busy claimer looks around this often at most.
const LEAST_POLL_MS: i64 = 25;
/// With inotify, the mtimes are still compared this often, in case an event was missed.
const SAFETY_POLL_MS: i64 = 30_000;

/// Without inotify, a delayed task in a shard that changed is looked at again after this time.
const DELAYED_CHECK_MS: i64 = 5_000;

/// Something in pending/ that can't be a task.
pub struct Foreign {
    /// Its path below the root, as bytes: it may be anything.
    pub path: Vec<u8>,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// The index and what keeps it current.
pub struct Pending {
    /// The tasks.
    pub index: Index,
    /// What a scan found that can't be a task; to be set aside.
    pub foreign: Vec<Foreign>,
    /// Tasks that stand directly below pending/ though there are shards; to be moved.
    pub strays: Vec<String>,
    views: Vec<View>,
    lanes: View,
    top: View,
    watch: Option<Watch>,
    watch_tried: bool,
    started: bool,
    eager: bool,
    /// Whether `paused` is there, as long as the kernel would tell of a change.
    paused: Option<bool>,
    looked_boot_ms: i64,
}

impl Pending {
    /// An index that has not looked yet.
    pub fn new(root: &Root) -> Pending {
        Pending {
            index: Index::new(root.shard_count()),
            foreign: Vec::new(),
            strays: Vec::new(),
            lanes: View::default(),
            top: View::default(),
            views: vec![View::default(); root.shard_count()],
            watch: None,
            watch_tried: false,
            started: false,
            eager: false,
            paused: None,
            looked_boot_ms: 0,
        }
    }

    /// What a wait can watch, if there is inotify here.
    pub fn watch_fd(&self) -> Option<Arc<OwnedFd>> {
        self.watch.as_ref().map(|watch| Arc::clone(watch.fd()))
    }

    /// Whether changes are told by the kernel.
    pub fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Whether claims are paused, as of the last refresh.
    pub fn is_paused(&mut self, root: &Root) -> Result<bool> {
        if let Some(paused) = self.paused.filter(|_| self.watch.is_some()) {
            return Ok(paused);
        }
        let paused = root.is_paused()?;
        self.paused = Some(paused);
        Ok(paused)
    }

    /// Takes in what changed. `thorough`: nothing is left to claim, so look properly.
    pub fn refresh(&mut self, root: &Root, now: Now, thorough: bool) -> Result<()> {
        if !self.started {
            self.start(root, now)?;
            return self.read_unread(root, false);
        }
        self.start_watching(root, now)?;
        let since = now.boot_ms - self.looked_boot_ms;
        let mut look = !(0..SAFETY_POLL_MS).contains(&since);
        match &mut self.watch {
            Some(watch) => {
                let events = watch.drain();
                if !events.is_empty() {
                    look |= self.take_events(root, events, now)?;
                }
            }
            None => look |= thorough || since >= LEAST_POLL_MS,
        }
        if look {
            self.compare_mtimes(root, now)?;
        }
        self.read_unread(root, false)
    }

    fn start(&mut self, root: &Root, now: Now) -> Result<()> {
        self.check_lanes(root, now)?;
        self.find_strays(root, now)?;
        self.looked_boot_ms = now.boot_ms;
        let all: Vec<u8> = (0..root.shard_count()).map(|shard| shard as u8).collect();
        self.read_shards(root, &all, now, true)?;
        self.started = true;
        Ok(())
    }

    /// Starts to watch, with the second look: a watch costs as much as a look, and a process
    /// that claims only once has no use for it. True: it has just started, and the next look
    /// compares all mtimes for what came before.
    pub fn start_watching(&mut self, root: &Root, now: Now) -> Result<bool> {
        if self.watch_tried || root.is_network() {
            return Ok(false);
        }
        self.watch_tried = true;
        // No inotify left (limits) or none at all: poll.
        self.watch = Watch::new().ok();
        self.watch_all(root);
        self.check_lanes(root, now)?;
        self.index.unblock_all();
        self.looked_boot_ms = i64::MIN / 2;
        Ok(true)
    }

    /// Watches everything, again if it was watched before and deleted since.
    fn watch_all(&mut self, root: &Root) {
        self.watch_top(root, Target::Root, ".");
        self.watch_top(root, Target::Lanes, "lanes");
        if root.layout() == Layout::Sharded {
            self.watch_top(root, Target::PendingTop, "pending");
        }
        for shard in 0..root.shard_count() {
            let shard = shard as u8;
            let path = root.shard_path(Area::Pending, shard);
            self.watch_top(root, Target::Pending(shard), &path);
        }
    }

    fn watch_top(&mut self, root: &Root, target: Target, path: &str) {
        let Some(watch) = &mut self.watch else { return };
        let watched = match sys::open_dir(root.fd(), path) {
            Ok(dir) => watch.add(&dir, target),
            // Not made yet, or foreign: a scan tells.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => Err(errno),
        };
        if watched.is_err() {
            self.watch = None;
        }
    }

    /// Returns whether the mtimes must be compared.
    fn take_events(&mut self, root: &Root, events: Vec<Event>, now: Now) -> Result<bool> {
        let mut look = false;
        for event in events {
            match event {
                Event::Came(Target::Pending(shard), name) if name.is_empty() => {
                    self.index.recheck_shard(shard);
                }
                Event::Came(Target::Pending(shard), name) => {
                    if id::is_valid(&name) {
                        self.index.add(shard, &name);
                    } else if name[0] != b'.' {
                        look = true;
                        self.views[usize::from(shard)].settled = false;
                    }
                }
                Event::Came(Target::PendingTop, name) => {
                    if let Some(shard) = id::shard_from_name(&name) {
                        let path = root.shard_path(Area::Pending, shard);
                        self.watch_top(root, Target::Pending(shard), &path);
                        look = true;
                    } else {
                        self.note_stray(&name);
                    }
                }
                Event::Came(Target::Completed(_), name) => {
                    let name = String::from_utf8_lossy(&name);
                    self.index.unblock(&name);
                    // In the flat layout a file may say that a task is completed.
                    if let Some(id) = name.strip_suffix(".json") {
                        self.index.unblock(id);
                    }
                }
                Event::Came(Target::Lanes, _) => self.eager = true,
                Event::Came(Target::Root, name) => {
                    self.paused = None;
                    if name == b"pending" || name == b"lanes" {
                        self.watch_all(root);
                        self.check_lanes(root, now)?;
                        look = true;
                    }
                }
                Event::Overflow => {
                    self.distrust();
                    self.watch_all(root);
                    self.find_strays(root, now)?;
                    self.index.unblock_all();
                    self.check_lanes(root, now)?;
                    look = true;
                }
            }
        }
        Ok(look)
    }

    /// Looks for tasks that a script put directly below pending/.
    fn find_strays(&mut self, root: &Root, now: Now) -> Result<()> {
        if root.layout() == Layout::Flat || !self.top.moved(root, "pending", now)? {
            return Ok(());
        }
        let failed = |errno| Error::io("read", "pending", errno);
        let dir = match sys::open_dir(root.fd(), "pending") {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        };
        sys::each_entry(&dir, |name, _| self.note_stray(name)).map_err(failed)
    }

    fn note_stray(&mut self, name: &[u8]) {
        if let Ok(id) = std::str::from_utf8(name) {
            if id::is_valid(name) && id::shard_from_name(name).is_none() {
                self.strays.push(id.to_owned());
            }
        }
    }

    /// Forgets that any shard was read.
    fn distrust(&mut self) {
        self.views.fill(View::default());
        self.lanes = View::default();
        self.top = View::default();
    }

    /// Whether lanes/ has anything in it: a priority other than normal is in use.
    fn check_lanes(&mut self, root: &Root, now: Now) -> Result<()> {
        if self.eager || !self.lanes.moved(root, "lanes", now)? {
            return Ok(());
        }
        let failed = |errno| Error::io("read", "lanes", errno);
        match sys::open_dir(root.fd(), "lanes") {
            Ok(dir) => sys::each_entry(&dir, |_, _| self.eager = true).map_err(failed),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Reads the shards whose mtime has moved.
    fn compare_mtimes(&mut self, root: &Root, now: Now) -> Result<()> {
        self.looked_boot_ms = now.boot_ms;
        self.paused = None;
        self.check_lanes(root, now)?;
        if self.watch.is_none() {
            self.find_strays(root, now)?;
            self.index.unblock_all();
        }
        let mut moved = Vec::new();
        for (shard, view) in self.views.iter_mut().enumerate() {
            let shard = shard as u8;
            let path = root.shard_path(Area::Pending, shard);
            let mtime = match fs::statat(root.fd(), &path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Some(mtime_of(&stat)),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(Error::io("look at", &path, errno)),
            };
            if mtime != view.mtime {
                *view = View {
                    mtime,
                    seen_boot_ms: now.boot_ms,
                    settled: false,
                };
            } else if view.settled || mtime.is_none() {
                continue;
            }
            view.settled = now.boot_ms - view.seen_boot_ms >= view.tick_ms();
            moved.push(shard);
        }
        if moved.is_empty() {
            return Ok(());
        }
        for shard in &moved {
            self.index.recheck_shard(*shard);
            if self.watch.is_none() {
                let soon = now.wall_ms + DELAYED_CHECK_MS;
                self.index.recheck_delayed(*shard, soon);
            }
        }
        self.read_shards(root, &moved, now, false)
            .inspect_err(|_| self.distrust())
    }

    /// Reads shards, on all cores. `anew`: for the first time, so note their mtimes.
    fn read_shards(&mut self, root: &Root, wanted: &[u8], now: Now, anew: bool) -> Result<()> {
        // Of another machine's clock nothing is known.
        let stamps = (anew && !root.is_network()).then(sys::file_clock);
        let shards = self.index.shards_mut().iter_mut().enumerate();
        let wanted = shards
            .filter(|(number, _)| wanted.contains(&(*number as u8)))
            .collect::<Vec<_>>();
        // Not once for each shard, as it is walked where there is no openat2.
        let pending = sys::open_dir_handle(root.fd(), Area::Pending.name());
        let results = scan::in_parallel(wanted, |(number, shard)| {
            let number = number as u8;
            let mut mtime = None;
            let opened = match (&pending, root.layout()) {
                (Ok(pending), Layout::Sharded) => {
                    sys::open_dir(pending.as_fd(), id::shard_name(number))
                }
                (Ok(_), Layout::Flat) => sys::open_dir(root.fd(), Area::Pending.name()),
                (Err(errno), _) => Err(*errno),
            };
            let listing = scan::list_opened(root, Area::Pending, number, opened, |dir| {
                if anew {
                    mtime = Some(mtime_of(&fs::fstat(dir)?));
                }
                Ok(())
            })?;
            let fresh = shard.replace_with(&listing.names);
            Ok((number, mtime, fresh, listing.foreign))
        });
        let mut outcome = Ok(());
        for result in results {
            // Those that were read count, whatever became of the others.
            let (number, mtime, fresh, foreign) = match result {
                Ok(read) => read,
                Err(error) => {
                    outcome = Err(error);
                    continue;
                }
            };
            if anew {
                self.views[usize::from(number)] = View::new(mtime, stamps, now);
            }
            self.index.add_fresh(number, &fresh);
            for (name, reason) in foreign {
                let path = scan::foreign_path(root, number, &name);
                self.foreign.push(Foreign { path, reason });
            }
        }
        outcome
    }

    /// Reads the envelopes that are needed to put tasks in order: all of them once a priority
    /// other than normal is in use, or for a claim with a filter.
    pub fn read_unread(&mut self, root: &Root, all: bool) -> Result<()> {
        if !self.eager && !all {
            return Ok(());
        }
        self.eager = true;
        let unread: Vec<(Ref, String)> = self
            .index
            .take_unread()
            .into_iter()
            .map(|entry| (entry, self.index.name(entry)))
            .collect();
        let found = scan::in_parallel(unread, |(entry, name)| {
            let found =
                scan::read_task_at(root, Area::Pending, entry.shard(), &name, usize::MAX / 4);
            (entry, found)
        });
        for (entry, found) in found {
            if self.index.place(entry) != Place::Ready {
                continue;
            }
            match found {
                Ok(Found::Task(task)) => {
                    self.index.learn(entry, &task);
                    match task.not_before {
                        Some(at) => self.index.set_delayed(entry, at.0),
                        None => self.index.set_ready(entry),
                    }
                }
                Ok(Found::Gone) => self.index.remove(entry),
                // The claim that tries it decides what to do about it.
                Ok(Found::Damaged(_)) | Err(_) => self.index.set_ready(entry),
            }
        }
        Ok(())
    }

    /// Wants to be told when `dependency` is completed.
    pub fn await_completion(&mut self, root: &Root, entry: Ref, dependency: &str) -> Result<()> {
        let shard = id::shard_of(dependency);
        if self.watch.is_some() {
            root.ensure_shard(Area::Completed, shard)?;
            let target = match root.layout() {
                Layout::Sharded => Target::Completed(shard),
                Layout::Flat => Target::Completed(0),
            };
            if !self.watch.as_ref().is_some_and(|watch| watch.has(target)) {
                self.watch_top(root, target, &root.shard_path(Area::Completed, shard));
            }
        }
        self.index.set_blocked(entry, dependency);
        Ok(())
    }
}
