//! Reading shard directories and envelopes, on as many threads as there are cores.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::envelope::{Damage, Envelope};
use crate::error::{Error, Result};
use crate::id;
use crate::names::Names;
use crate::root::{Area, Root};
use crate::sys::{self, Content};

/// Fewer things than this are not worth a second thread.
const WORTH_A_THREAD: usize = 48;
const MAX_THREADS: usize = 8;

/// What stands in a shard directory.
#[derive(Default)]
pub struct Listing {
    /// Names of task directories.
    pub names: Names,
    /// Names that can't be tasks, and why.
    pub foreign: Vec<(Vec<u8>, &'static str)>,
}

/// Lists a shard of an area. A shard that was never made is empty.
pub fn list(root: &Root, area: Area, shard: u8) -> Result<Listing> {
    let opened = sys::open_dir(root.fd(), &root.shard_path(area, shard));
    list_opened(root, area, shard, opened, |_| Ok(()))
}

/// Lists a shard that was opened (or could not be), after `first` had the directory.
pub fn list_opened(
    root: &Root,
    area: Area,
    shard: u8,
    opened: rustix::io::Result<OwnedFd>,
    first: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
) -> Result<Listing> {
    let path = root.shard_path(area, shard);
    let mut listing = Listing::default();
    let dir = match opened {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(listing),
        Err(Errno::NOTDIR | Errno::LOOP) if path.contains('/') => {
            listing
                .foreign
                .push((Vec::new(), "it is not a directory, but stands for a shard"));
            return Ok(listing);
        }
        Err(errno) => return Err(Error::io("open", &path, errno)),
    };
    first(&dir).map_err(|errno| Error::io("look at", &path, errno))?;
    sys::each_entry(&dir, |name, kind| match kind {
        // Hidden files belong to editors, file managers and sync programs.
        _ if name[0] == b'.' => {}
        FileType::Directory | FileType::Unknown if id::is_valid(name) => {
            listing.names.push(name);
        }
        FileType::Directory => listing
            .foreign
            .push((name.to_vec(), "its name is not a task id")),
        FileType::Symlink => listing.foreign.push((name.to_vec(), "it is a symlink")),
        FileType::RegularFile if area == Area::Completed => {}
        _ => listing
            .foreign
            .push((name.to_vec(), "it is not a directory")),
    })
    .map_err(|errno| Error::io("read", &path, errno))?;
    Ok(listing)
}

/// The path of a foreign thing in a shard of pending/; an empty name: of the shard itself.
pub fn foreign_path(root: &Root, shard: u8, name: &[u8]) -> Vec<u8> {
    let mut path = root.shard_path(Area::Pending, shard).into_bytes();
    if !name.is_empty() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

/// Does `work` on each item, spread over the cores, and returns the results in any order.
pub fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = cores().min(items.len() / WORTH_A_THREAD + 1);
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let count = items.len();
    // Taken in small lots: one thread may be slower, or have the larger shards.
    let lot = (count / threads / 16).max(1);
    let items = Mutex::new(items.into_iter());
    let share = || {
        let mut results = Vec::with_capacity(count / threads + lot);
        loop {
            let taken: Vec<T> = items.lock().by_ref().take(lot).collect();
            if taken.is_empty() {
                return results;
            }
            results.extend(taken.into_iter().map(&work));
        }
    };
    std::thread::scope(|scope| {
        // A thread that is refused (limits) is done without.
        let others: Vec<_> = (1..threads)
            .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, share).ok())
            .collect();
        let mut results = share();
        for other in others {
            match other.join() {
                Ok(more) => results.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    })
}

fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.min(MAX_THREADS)
    })
}

/// What reading a task's envelope found.
pub enum Found {
    /// The task.
    Task(Box<Envelope>),
    /// It is no longer there.
    Gone,
    /// It is there, but can't be used.
    Damaged(String),
}

/// Reads the task.json in an open task directory.
pub fn read_task(
    dir: std::os::fd::BorrowedFd<'_>,
    id: &str,
    limit: usize,
) -> rustix::io::Result<Found> {
    Ok(task_in(id, sys::read_file(dir, "task.json", limit)?))
}

/// Reads the task.json of the task `id` in an open shard directory.
pub fn read_task_in(
    shard: std::os::fd::BorrowedFd<'_>,
    id: &str,
    limit: usize,
) -> rustix::io::Result<Found> {
    match sys::read_file_beneath(shard, &format!("{id}/task.json"), limit) {
        Ok((content, _)) => Ok(task_in(id, content)),
        Err(Errno::NOTDIR) => Ok(Found::Damaged("it is not a directory".into())),
        Err(errno) => Err(errno),
    }
}

fn task_in(id: &str, content: Content) -> Found {
    match content {
        Content::Missing => Found::Damaged("task.json is missing".into()),
        Content::Foreign(what) => Found::Damaged(what.into_owned()),
        Content::Whole(content) => match Envelope::parse(id, &content) {
            Ok(task) => Found::Task(Box::new(task)),
            Err(Damage::Broken(what)) => Found::Damaged(what),
            Err(Damage::Newer(version)) => Found::Damaged(format!(
                "task.json has version {version}, newer than this dfq; upgrade it"
            )),
        },
    }
}

/// Reads a task by its path.
pub fn read_task_at(root: &Root, area: Area, shard: u8, id: &str, limit: usize) -> Result<Found> {
    use std::os::fd::AsFd;
    let path = root.task_path(area, shard, id);
    match sys::open_dir_handle(root.fd(), &path) {
        Ok(dir) => read_task(dir.as_fd(), id, limit).map_err(|e| Error::io("read", &path, e)),
        Err(Errno::NOENT) => Ok(Found::Gone),
        Err(Errno::LOOP | Errno::NOTDIR) => Ok(Found::Damaged("it is not a directory".into())),
        Err(errno) => Err(Error::io("open", &path, errno)),
    }
}
