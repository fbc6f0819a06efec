//! The system calls of the file engine in a bare loop: the ceiling it is measured against.
//!
//! No index, no JSON, no fences, no errors worth handling: only what the kernel is asked for.
//! It works on a queue that dfq has filled, so both touch the very same files. Prints one line
//! of JSON.
//!
//! ```text
//! bare_loop push  DIR COUNT     build aside and rename in, nothing synced
//! bare_loop drain DIR THREADS   watch and list all shards, then claim + read + ack every task
//! bare_loop scan  DIR THREADS   list in parallel
//! bare_loop read  DIR THREADS   list in parallel, and read every task.json
//! ```

// A stopwatch reads the clock itself.
#![allow(clippy::disallowed_methods)]

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use rustix::fs::{self, inotify, AtFlags, Mode, OFlags, RawDir, ResolveFlags, Timespec};

const SHARDS: usize = 256;
/// task.json: a payload of 300 bytes and its envelope.
const TASK_BYTES: usize = 500;
const LEASE_BYTES: usize = 410;
const BUFFER_BYTES: usize = 4096;
const NAMES_BYTES: usize = 32 * 1024;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A task by its paths below the root.
struct Task {
    pending: String,
    lease: String,
    completed: String,
    scratch: String,
    shard: usize,
}

impl Task {
    fn new(shard: usize, id: &str) -> Self {
        Self {
            pending: format!("pending/{shard:02x}/{id}"),
            lease: format!("pending/{shard:02x}/{id}/lease.json"),
            completed: format!("completed/{shard:02x}/{id}"),
            scratch: format!("tmp/{id}"),
            shard,
        }
    }
}

/// The handles a queue keeps open while it runs.
struct Queue {
    root: OwnedFd,
    lock: OwnedFd,
    watch: OwnedFd,
}

impl Queue {
    fn open(path: &Path) -> Result<Self> {
        for area in ["pending", "completed"] {
            for shard in 0..SHARDS {
                std::fs::create_dir_all(path.join(format!("{area}/{shard:02x}")))?;
            }
        }
        std::fs::create_dir_all(path.join("tmp"))?;
        let root = fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let lock = fs::openat(&root, "lock", flags, Mode::RUSR | Mode::WUSR)?;
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        Ok(Self { root, lock, watch })
    }

    fn watch_shards(&self) -> Result<()> {
        let flags = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        for shard in 0..SHARDS {
            let path = format!(
                "/proc/self/fd/{}/pending/{shard:02x}",
                self.root.as_raw_fd()
            );
            inotify::add_watch(&self.watch, path, flags)?;
        }
        Ok(())
    }

    fn push(&self, task: &Task, body: &[u8]) -> Result<()> {
        fs::mkdirat(&self.root, &task.scratch, Mode::RWXU)?;
        let directory = self.open_task(&task.scratch)?;
        let file = create(directory.as_fd(), c"task.json")?;
        rustix::io::write(&file, body)?;
        drop((file, directory));
        Ok(fs::renameat(
            &self.root,
            &task.scratch,
            &self.root,
            &task.pending,
        )?)
    }

    fn claim(&self, task: &Task, lease: &[u8], buffer: &mut [u8]) -> Result<OwnedFd> {
        // Did anything come in, was the queue paused? The kernel says no.
        let _ = rustix::io::read(&self.watch, &mut *buffer);
        let directory = self.open_task(&task.pending)?;
        fs::fstat(&directory)?;
        let file = create(directory.as_fd(), c"lease.json")?;
        read_file(directory.as_fd(), c"task.json", buffer)?;
        rustix::io::write(&file, lease)?;
        fs::fstat(&file)?;
        Ok(file)
    }

    fn ack(&self, task: &Task, lease: OwnedFd) -> Result<()> {
        self.lock_byte(libc::F_WRLCK, task.shard)?;
        fs::statat(&self.root, "lock", AtFlags::SYMLINK_NOFOLLOW)?;
        fs::statat(&self.root, &task.lease, AtFlags::SYMLINK_NOFOLLOW)?;
        let now = Timespec {
            tv_sec: 1_800_000_000,
            tv_nsec: 0,
        };
        let finished = fs::Timestamps {
            last_access: now,
            last_modification: now,
        };
        fs::futimens(&lease, &finished)?;
        fs::renameat(&self.root, &task.pending, &self.root, &task.completed)?;
        self.lock_byte(libc::F_UNLCK, task.shard)
    }

    fn open_task(&self, path: &str) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS;
        Ok(fs::openat2(
            &self.root,
            path,
            flags,
            Mode::empty(),
            resolve,
        )?)
    }

    fn lock_byte(&self, kind: libc::c_int, byte: usize) -> Result<()> {
        // SAFETY: flock is plain data, and zero is a value of each of its fields.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = kind as _;
        range.l_whence = libc::SEEK_SET as _;
        range.l_start = byte as _;
        range.l_len = 1;
        // SAFETY: the handle is open, and `range` outlives the call.
        let status = unsafe { libc::fcntl(self.lock.as_raw_fd(), libc::F_SETLK, &mut range) };
        if status == -1 {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(())
    }
}

fn create(directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?)
}

fn read_file(directory: BorrowedFd<'_>, name: &CStr, buffer: &mut [u8]) -> Result<usize> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(directory, name, flags, Mode::empty())?;
    Ok(rustix::io::read(&file, buffer)?)
}

fn shuffle(tasks: &mut [Task]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..tasks.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        tasks.swap(last, (state >> 33) as usize % (last + 1));
    }
}

fn push_all(root: &Path, count: usize) -> Result<(usize, f64)> {
    let queue = Queue::open(root)?;
    let mut tasks: Vec<Task> = (0..count)
        .map(|number| Task::new(number % SHARDS, &format!("bare-{number:020}")))
        .collect();
    shuffle(&mut tasks);
    let body = [b'x'; TASK_BYTES];
    let start = Instant::now();
    for task in &tasks {
        queue.push(task, &body)?;
    }
    Ok((count, start.elapsed().as_secs_f64()))
}

fn drain_all(root: &Path, threads: usize) -> Result<(usize, f64)> {
    let queue = Queue::open(root)?;
    let lease = [b'x'; LEASE_BYTES];
    let mut buffer = [0_u8; BUFFER_BYTES];
    let start = Instant::now();
    queue.watch_shards()?;
    let mut tasks = list_all(root, threads, false)?;
    shuffle(&mut tasks);
    for task in &tasks {
        let held = queue.claim(task, &lease, &mut buffer)?;
        queue.ack(task, held)?;
    }
    Ok((tasks.len(), start.elapsed().as_secs_f64()))
}

fn scan_all(root: &Path, threads: usize, contents: bool) -> Result<(usize, f64)> {
    let start = Instant::now();
    let names = read_names(root, threads, contents)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((names.iter().map(|(_, names)| count(names)).sum(), seconds))
}

fn count(names: &[u8]) -> usize {
    names.iter().filter(|byte| **byte == b'/').count()
}

fn list_all(root: &Path, threads: usize, contents: bool) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    for (shard, names) in read_names(root, threads, contents)? {
        for name in names
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            tasks.push(Task::new(shard, std::str::from_utf8(name)?));
        }
    }
    Ok(tasks)
}

/// The names in every shard of pending/, each ended by a slash.
fn read_names(root: &Path, threads: usize, contents: bool) -> Result<Vec<(usize, Vec<u8>)>> {
    let root = fs::open(root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(SHARDS));
    let work = || -> Result<()> {
        let mut buffer = Vec::with_capacity(NAMES_BYTES);
        loop {
            let shard = next.fetch_add(1, Ordering::Relaxed);
            if shard >= SHARDS {
                return Ok(());
            }
            let names = read_shard(root.as_fd(), shard, contents, &mut buffer)?;
            found
                .lock()
                .map_err(|_| "a thread panicked")?
                .push((shard, names));
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work()?;
        others
            .into_iter()
            .try_for_each(|other| other.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(found.into_inner().map_err(|_| "a thread panicked")?)
}

fn read_shard(
    root: BorrowedFd<'_>,
    shard: usize,
    contents: bool,
    buffer: &mut Vec<u8>,
) -> Result<Vec<u8>> {
    let mut names = Vec::new();
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match fs::openat(root, format!("pending/{shard:02x}"), flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(names),
        other => other?,
    };
    let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        names.extend_from_slice(name.to_bytes());
        names.push(b'/');
        if contents {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let task = fs::openat(&directory, name, flags, Mode::empty())?;
            read_file(task.as_fd(), c"task.json", &mut [0_u8; BUFFER_BYTES])?;
        }
    }
    Ok(names)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, root, number] = arguments.as_slice() else {
        return Err("usage: bare_loop push|drain|scan|read DIR NUMBER".into());
    };
    let (root, number) = (PathBuf::from(root), number.parse::<usize>()?);
    let (count, seconds) = match mode.as_str() {
        "push" => push_all(&root, number)?,
        "drain" => drain_all(&root, number)?,
        "scan" => scan_all(&root, number, false)?,
        "read" => scan_all(&root, number, true)?,
        other => return Err(format!("no mode {other:?}; use push, drain, scan or read").into()),
    };
    println!(r#"{{"mode":"{mode}","count":{count},"seconds":{seconds:.6}}}"#);
    Ok(())
}
