//! The system calls of the file engine in a bare loop: the ceiling it is measured against.
//!
//! No index, no JSON, no fences, no errors worth handling: only what the kernel is asked for.
//! Prints one line of JSON.
//!
//! ```text
//! bare_loop push  DIR COUNT           build aside and rename in, nothing synced
//! bare_loop drain DIR COUNT           push first, then claim + read + ack of all of them
//! bare_loop scan  DIR THREADS         read the names in pending/, in parallel
//! bare_loop read  DIR THREADS         the same, and read every task.json
//! ```

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags, RawDir};

const SHARDS: usize = 256;
const PAYLOAD_BYTES: usize = 300;
const ENVELOPE_BYTES: usize = 250;
const LEASE_BYTES: usize = 350;
const READ_BUFFER_BYTES: usize = 4096;
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The directories a queue keeps open while it runs.
struct Queue {
    tmp: OwnedFd,
    lock: OwnedFd,
    pending: Vec<OwnedFd>,
    completed: Vec<OwnedFd>,
}

impl Queue {
    fn make(root: &Path) -> Result<Self> {
        std::fs::create_dir_all(root.join("tmp"))?;
        let lock = fs::open(
            root.join("lock"),
            OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )?;
        Ok(Self {
            tmp: open_directory(&root.join("tmp"))?,
            lock,
            pending: make_shards(&root.join("pending"))?,
            completed: make_shards(&root.join("completed"))?,
        })
    }

    fn push(&self, task: &Task, body: &[u8]) -> Result<()> {
        fs::mkdirat(&self.tmp, &task.name, Mode::RWXU)?;
        let directory = fs::openat(&self.tmp, &task.name, DIRECTORY, Mode::empty())?;
        let file = create(directory.as_fd(), c"task.json")?;
        rustix::io::write(&file, body)?;
        drop(file);
        drop(directory);
        fs::renameat(&self.tmp, &task.name, &self.pending[task.shard], &task.name)?;
        Ok(())
    }

    fn claim(&self, task: &Task, lease: &[u8], buffer: &mut [u8]) -> Result<usize> {
        let directory = fs::openat(
            &self.pending[task.shard],
            &task.name,
            DIRECTORY | OFlags::PATH,
            Mode::empty(),
        )?;
        let file = create(directory.as_fd(), c"lease.json")?;
        let length = read_file(directory.as_fd(), c"task.json", buffer)?;
        rustix::io::write(&file, lease)?;
        fs::fstat(&file)?;
        Ok(length)
    }

    fn ack(&self, task: &Task, buffer: &mut [u8]) -> Result<()> {
        fs::fcntl_lock(&self.lock, FlockOperation::LockExclusive)?;
        let directory = fs::openat(
            &self.pending[task.shard],
            &task.name,
            DIRECTORY | OFlags::PATH,
            Mode::empty(),
        )?;
        read_file(directory.as_fd(), c"lease.json", buffer)?;
        drop(directory);
        fs::renameat(
            &self.pending[task.shard],
            &task.name,
            &self.completed[task.shard],
            &task.name,
        )?;
        fs::fcntl_lock(&self.lock, FlockOperation::Unlock)?;
        Ok(())
    }
}

struct Task {
    name: CString,
    shard: usize,
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    Ok(fs::open(path, DIRECTORY | OFlags::PATH, Mode::empty())?)
}

fn make_shards(root: &Path) -> Result<Vec<OwnedFd>> {
    (0..SHARDS)
        .map(|shard| {
            let path = root.join(format!("{shard:02x}"));
            std::fs::create_dir_all(&path)?;
            open_directory(&path)
        })
        .collect()
}

fn create(directory: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?)
}

fn read_file(
    directory: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    buffer: &mut [u8],
) -> Result<usize> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(directory, name, flags, Mode::empty())?;
    Ok(rustix::io::read(&file, buffer)?)
}

/// Tasks in an order that jumps between shards, as hashed ids do.
fn tasks(count: usize) -> Vec<Task> {
    let mut numbers: Vec<usize> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..count).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        numbers.swap(last, (state >> 33) as usize % (last + 1));
    }
    numbers
        .into_iter()
        .map(|number| Task {
            name: CString::new(format!("01hzy0000000000000{number:08}")).expect("no NUL in it"),
            shard: number % SHARDS,
        })
        .collect()
}

fn push_all(queue: &Queue, tasks: &[Task]) -> Result<f64> {
    let body = vec![b'x'; PAYLOAD_BYTES + ENVELOPE_BYTES];
    let start = Instant::now();
    for task in tasks {
        queue.push(task, &body)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

fn drain_all(queue: &Queue, tasks: &[Task]) -> Result<f64> {
    let lease = vec![b'x'; LEASE_BYTES];
    let mut buffer = vec![0_u8; READ_BUFFER_BYTES];
    let start = Instant::now();
    for task in tasks {
        queue.claim(task, &lease, &mut buffer)?;
        queue.ack(task, &mut buffer)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Names in one shard; with `contents`, each task.json is read as well.
fn scan_shard(path: &Path, contents: bool, bytes: &mut Vec<u8>) -> Result<usize> {
    let Ok(directory) = fs::open(path, DIRECTORY, Mode::empty()) else {
        return Ok(0);
    };
    let mut found = 0;
    let mut content = [0_u8; READ_BUFFER_BYTES];
    let mut entries = RawDir::new(&directory, bytes.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if entry.file_name().to_bytes().starts_with(b".") {
            continue;
        }
        found += 1;
        if contents {
            let task = fs::openat(
                &directory,
                entry.file_name(),
                DIRECTORY | OFlags::PATH,
                Mode::empty(),
            )?;
            // Is it leased? The engine asks too.
            let _ = fs::statat(&task, c"lease.json", AtFlags::SYMLINK_NOFOLLOW);
            read_file(task.as_fd(), c"task.json", &mut content)?;
        }
    }
    Ok(found)
}

fn scan_all(pending: &Path, threads: usize, contents: bool) -> Result<(usize, f64)> {
    let next = AtomicUsize::new(0);
    let found = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut bytes = Vec::with_capacity(64 * 1024);
                loop {
                    let shard = next.fetch_add(1, Ordering::Relaxed);
                    if shard >= SHARDS {
                        return;
                    }
                    let path = pending.join(format!("{shard:02x}"));
                    let count = scan_shard(&path, contents, &mut bytes).expect("readable shard");
                    found.fetch_add(count, Ordering::Relaxed);
                }
            });
        }
    });
    Ok((found.into_inner(), start.elapsed().as_secs_f64()))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, root, number] = arguments.as_slice() else {
        return Err("usage: bare_loop push|drain|scan|read DIR NUMBER".into());
    };
    let (root, number) = (PathBuf::from(root), number.parse::<usize>()?);
    let (count, seconds) = match mode.as_str() {
        "scan" => scan_all(&root.join("pending"), number, false)?,
        "read" => scan_all(&root.join("pending"), number, true)?,
        "push" => (number, push_all(&Queue::make(&root)?, &tasks(number))?),
        "drain" => {
            let (queue, tasks) = (Queue::make(&root)?, tasks(number));
            push_all(&queue, &tasks)?;
            (number, drain_all(&queue, &tasks)?)
        }
        other => return Err(format!("no mode {other:?}; use push, drain, scan or read").into()),
    };
    println!(r#"{{"mode":"{mode}","count":{count},"seconds":{seconds:.6}}}"#);
    Ok(())
}
