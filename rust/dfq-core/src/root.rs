//! The folder of a queue: its areas, paths, layout and boot epoch.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::boot::Boot;
use crate::error::{Error, Kind, Result};
use crate::forked::PerProcess;
use crate::host::Identity;
use crate::id;
use crate::layout::{self, Layout};
use crate::lock::{self, Guard, LockFile};
use crate::sys;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// Waiting or held.
    Pending,
    /// Done.
    Completed,
    /// Given up.
    Failed,
}

impl Area {
    /// The name of the area's directory.
    pub fn name(self) -> &'static str {
        match self {
            Area::Pending => "pending",
            Area::Completed => "completed",
            Area::Failed => "failed",
        }
    }

    /// The area of this name.
    pub fn from_name(name: &str) -> Option<Area> {
        [Area::Pending, Area::Completed, Area::Failed]
            .into_iter()
            .find(|a| a.name() == name)
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// Every boot starts its fences above those of earlier boots, so that claims lost in a power
/// cut (they are not synced) can't lead to a fence being given twice.
const FENCES_PER_BOOT: u64 = 1_000_000;
/// So often a deleted lock file is replaced before that counts as a mistake.
const MOST_LOCK_FILES: usize = 100;

/// What belongs to the running process; made anew after a fork.
pub struct ProcessPart {
    /// Who we are.
    pub me: Identity,
    /// Our handle on the lock file; another one if somebody deletes that.
    locks: Mutex<Arc<LockFile>>,
}

/// An open queue folder.
pub struct Root {
    handle: OwnedFd,
    path: String,
    layout: Layout,
    network: bool,
    owner: u32,
    process: PerProcess<ProcessPart>,
    first_fence: u64,
    shard_made: [[AtomicBool; 256]; 3],
    scratch: AtomicU64,
}

impl Root {
    /// Opens the folder, making what is missing.
    pub fn open(path: &str) -> Result<Root> {
        let failed = |doing: &'static str| move |e: Errno| Error::io(doing, path, e);
        make_folders(Path::new(path))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = fs::open(path, flags, Mode::empty()).map_err(failed("open"))?;
        let mut made = false;
        for area in [
            "pending",
            "completed",
            "failed",
            "tmp",
            "quarantine",
            "lanes",
        ] {
            made |= sys::ensure_dir(handle.as_fd(), area).map_err(|errno| match errno {
                Errno::LOOP | Errno::NOTDIR => Error::new(
                    Kind::Unavailable,
                    format!("{path}/{area} is not a directory of the queue; move it away"),
                ),
                errno => Error::io("make", &format!("{path}/{area}"), errno),
            })?;
        }
        if made {
            sys::sync(&handle).map_err(failed("sync"))?;
            // Whoever made the folder may have been killed before its sync.
            sync_parent(Path::new(path))?;
        }
        let stated = layout::stated(handle.as_fd(), path)?;
        let mut root = Root {
            network: sys::is_network(&handle),
            owner: fs::fstat(&handle).map_err(failed("look at"))?.st_uid,
            path: path.to_owned(),
            layout: Layout::Sharded,
            process: PerProcess::new(),
            first_fence: 0,
            shard_made: std::array::from_fn(|_| std::array::from_fn(|_| AtomicBool::new(false))),
            scratch: AtomicU64::new(0),
            handle,
        };
        let boot = root.this_boot(stated)?;
        root.layout = stated.or(boot.layout).unwrap_or(Layout::Sharded);
        root.first_fence = boot.epoch.saturating_mul(FENCES_PER_BOOT);
        Ok(root)
    }

    /// Counts boots in boot.json, durably; and fixes the layout there at the first use, so that
    /// what a script drops into the folder later can't change it.
    fn this_boot(&self, stated: Option<Layout>) -> Result<Boot> {
        let process = self.process()?;
        let is_settled = |boot: &Boot| {
            boot.boot_id == process.me.boot_id && (stated.is_some() || boot.layout.is_some())
        };
        if let Some(boot) = Boot::read(self.fd()).filter(is_settled) {
            return Ok(boot);
        }
        let writable = process.locks.lock().is_writable();
        let _guard = writable.then(|| self.lock(lock::QUEUE)).transpose()?;
        let known = Boot::read(self.fd());
        if let Some(boot) = known.as_ref().filter(|boot| is_settled(boot)) {
            return Ok(boot.clone());
        }
        let layout = match stated.or(known.as_ref().and_then(|boot| boot.layout)) {
            Some(layout) => layout,
            None => layout::guess(self.fd(), &self.path)?,
        };
        let epoch = match &known {
            Some(boot) if boot.boot_id == process.me.boot_id => boot.epoch,
            Some(boot) => boot.epoch + 1,
            None => 0,
        };
        let boot = Boot {
            boot_id: process.me.boot_id.clone(),
            epoch,
            layout: Some(layout),
        };
        // On a read-only disk nothing can be claimed, so no fence is needed.
        if writable {
            boot.write(&self.handle)
                .map_err(|e| Error::io("write", "boot.json", e))?;
        }
        Ok(boot)
    }

    /// The folder itself.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// An owned handle on the folder, for [`sys::sync`].
    pub fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// The path it was opened by.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How tasks are laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether other machines may share the folder.
    pub fn is_network(&self) -> bool {
        self.network
    }

    /// The fence that comes after `last`; fences of this boot are above those of earlier ones.
    pub fn next_fence(&self, last: u64) -> u64 {
        last.max(self.first_fence).saturating_add(1)
    }

    /// Whether a directory of this owner may hold a task.
    pub fn trusts_owner(&self, uid: u32) -> bool {
        uid == self.owner || uid == rustix::process::geteuid().as_raw()
    }

    /// Who we are and our locks, as of this process.
    pub fn process(&self) -> Result<&ProcessPart> {
        self.process.get_or_make(|| {
            Ok(ProcessPart {
                me: Identity::current(),
                locks: Mutex::new(LockFile::of(self.fd())?),
            })
        })
    }

    /// Takes a lock of the queue: a shard, or one of those named in [`crate::lock`].
    pub fn lock(&self, which: usize) -> Result<Guard> {
        let process = self.process()?;
        for _ in 0..MOST_LOCK_FILES {
            let file = Arc::clone(&process.locks.lock());
            let guard = file.take(which)?;
            // People delete files called "lock". Who locks a deleted one excludes nobody.
            if guard.file().stands_in(self.fd()) {
                return Ok(guard);
            }
            drop(guard);
            *process.locks.lock() = LockFile::of(self.fd())?;
        }
        Err(Error::new(
            Kind::Busy,
            format!(
                "{}/lock is being deleted again and again; let it stand",
                self.path
            ),
        ))
    }

    /// Whether somebody paused the queue.
    pub fn is_paused(&self) -> Result<bool> {
        sys::exists(self.fd(), "paused").map_err(|e| Error::io("look at", "paused", e))
    }

    /// Fails if the folder was deleted while it was open.
    pub fn check_present(&self) -> Result<()> {
        match fs::fstat(&self.handle) {
            Ok(stat) if stat.st_nlink > 0 && sys::exists(self.fd(), "pending") == Ok(true) => {
                Ok(())
            }
            Ok(_) => Err(Error::new(
                Kind::Unavailable,
                format!(
                    "the queue folder {} was deleted while it was open",
                    self.path
                ),
            )),
            Err(errno) => Err(Error::io("look at", &self.path, errno)),
        }
    }

    /// The number of directories below an area: 256 shards, or the area itself.
    pub fn shard_count(&self) -> usize {
        match self.layout {
            Layout::Sharded => 256,
            Layout::Flat => 1,
        }
    }

    /// The path of a shard's directory.
    pub fn shard_path(&self, area: Area, shard: u8) -> String {
        match self.layout {
            Layout::Sharded => [area.name(), "/", id::shard_name(shard)].concat(),
            Layout::Flat => area.name().to_owned(),
        }
    }

    /// The path of a task's directory.
    pub fn task_path(&self, area: Area, shard: u8, id: &str) -> String {
        match self.layout {
            // Not format!: on a Pi that is a sixth of what a claim computes.
            Layout::Sharded => [area.name(), "/", id::shard_name(shard), "/", id].concat(),
            Layout::Flat => [area.name(), "/", id].concat(),
        }
    }

    /// The path of a pending task's lease.
    pub fn lease_path(&self, shard: u8, id: &str) -> String {
        let mut path = self.task_path(Area::Pending, shard, id);
        path.push_str("/lease.json");
        path
    }

    /// The single file by which the first paper's layout says that a task is completed.
    pub fn completed_file(&self, id: &str) -> Option<String> {
        (self.layout == Layout::Flat).then(|| format!("completed/{id}.json"))
    }

    /// Makes a shard's directory at its first use. True: it was missing.
    pub fn ensure_shard(&self, area: Area, shard: u8) -> Result<bool> {
        if self.layout == Layout::Flat
            || self.shard_made[area.index()][usize::from(shard)].load(Ordering::Relaxed)
        {
            return Ok(false);
        }
        let path = self.shard_path(area, shard);
        let made = sys::ensure_dir(self.fd(), &path).map_err(|e| Error::io("make", &path, e))?;
        self.shard_made[area.index()][usize::from(shard)].store(true, Ordering::Relaxed);
        Ok(made)
    }

    /// Forgets which shards were made: one of them has disappeared.
    pub fn forget_shards(&self) {
        for made in self.shard_made.iter().flatten() {
            made.store(false, Ordering::Relaxed);
        }
    }

    /// A name below `tmp/` that nobody else uses. It says which process made it, so that a
    /// sweeper can tell whether its maker still lives.
    pub fn scratch_path(&self, nonce: &str) -> String {
        let count = self.scratch.fetch_add(1, Ordering::Relaxed);
        let (namespace, pid, start) = match self.process() {
            Ok(ProcessPart { me, .. }) => (me.pid_namespace, me.pid, me.pid_start),
            Err(_) => (None, crate::host::pid(), None),
        };
        let (namespace, start) = (namespace.unwrap_or(0), start.unwrap_or(0));
        format!("tmp/{namespace}-{pid}-{start}-{nonce}-{count}")
    }

    /// Makes a file below `tmp/`, and `tmp/` itself if somebody deleted it.
    pub fn create_scratch(&self, scratch: &str) -> rustix::io::Result<OwnedFd> {
        match sys::create_exclusive(self.fd(), scratch) {
            Err(Errno::NOENT) => {
                sys::ensure_dir(self.fd(), "tmp")?;
                sys::create_exclusive(self.fd(), scratch)
            }
            other => other,
        }
    }

    /// Puts `bytes` in place as `<dir>/<name>`, whole, replacing what was there.
    ///
    /// Written aside, synced if it must survive a power cut, then renamed. If it need not, it is
    /// still no empty file that the rename leaves behind after one.
    pub fn try_replace(
        &self,
        dir: BorrowedFd<'_>,
        name: &str,
        bytes: &[u8],
        nonce: &str,
        durable: bool,
    ) -> rustix::io::Result<()> {
        let scratch = self.scratch_path(nonce);
        let attempt = || -> rustix::io::Result<()> {
            let file = self.create_scratch(&scratch)?;
            sys::write_all(&file, bytes)?;
            if durable {
                sys::sync(&file)?;
            } else {
                sys::begin_writing(&file);
            }
            fs::renameat(self.fd(), &scratch, dir, name)
        };
        attempt().inspect_err(|_| {
            // Best effort: what stays behind is swept.
            let _ = fs::unlinkat(self.fd(), &scratch, fs::AtFlags::empty());
        })
    }

    /// [`Root::try_replace`], with an error that says what could not be written.
    pub fn replace(
        &self,
        dir: BorrowedFd<'_>,
        name: &str,
        bytes: &[u8],
        nonce: &str,
        durable: bool,
    ) -> Result<()> {
        self.try_replace(dir, name, bytes, nonce, durable)
            .map_err(|errno| Error::io("write", name, errno))
    }
}

fn make_folders(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let missing: Vec<&Path> = path.ancestors().take_while(|p| !p.exists()).collect();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|e| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            Error::io("make the folder", &path.to_string_lossy(), errno)
        })?;
    missing.into_iter().try_for_each(sync_parent)
}

/// Makes the name of a folder survive a power cut.
fn sync_parent(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let synced = match fs::open(parent, flags, Mode::empty()) {
        Ok(dir) => sys::sync(&dir),
        // A folder may be passed through without being readable; then it is not ours to sync.
        Err(Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno),
    };
    synced.map_err(|errno| Error::io("sync", &parent.to_string_lossy(), errno))
}
