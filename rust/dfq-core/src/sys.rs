//! System calls, each relative to a directory handle, none following a symlink.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// New files: for the owner only.
pub const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// New directories: for the owner only.
pub const DIR_MODE: Mode = Mode::from_raw_mode(0o700);

#[cfg(target_os = "linux")]
const HANDLE: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const HANDLE: OFlags = OFlags::RDONLY;

/// To read a file, whatever it turns out to be.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// Opens a directory below `root` without following a symlink anywhere in `path`.
pub fn open_dir(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    open_beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Like [`open_dir`], but only a handle to resolve names against.
pub fn open_dir_handle(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    open_beneath(root, path, HANDLE | OFlags::DIRECTORY)
}

fn open_beneath(root: BorrowedFd<'_>, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        // Not BENEATH: paths are made of checked ids, so none has dots; and for it the kernel
        // takes a lock that all processes share.
        let resolve = fs::ResolveFlags::NO_SYMLINKS;
        match fs::openat2(root, path, flags, Mode::empty(), resolve) {
            // Old kernels, emulators and some sandboxes lack it; walk the path instead.
            Err(Errno::NOSYS | Errno::PERM) => NO_OPENAT2.store(true, Ordering::Relaxed),
            other => return other,
        }
    }
    let mut parts = path.split('/').peekable();
    let mut current: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        let at = current.as_ref().map_or(root, |fd| fd.as_fd());
        let step = if parts.peek().is_some() {
            HANDLE | OFlags::DIRECTORY
        } else {
            flags
        };
        current = Some(fs::openat(
            at,
            part,
            step | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
    }
    current.ok_or(Errno::NOENT)
}

/// What reading a small file found.
pub enum Content {
    /// All of it.
    Whole(Vec<u8>),
    /// It is not there.
    Missing,
    /// Something is there that can't be a file of ours; the text says what.
    Foreign(Cow<'static, str>),
}

/// Reads a regular file of at most `limit` bytes. Never blocks on a FIFO.
pub fn read_file(dir: BorrowedFd<'_>, name: &str, limit: usize) -> rustix::io::Result<Content> {
    read_opened(open_file(dir, name), name, limit).map(|(content, _)| content)
}

/// Opens a file to read it. Never blocks on a FIFO.
pub fn open_file(dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = READ | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::empty())
}

/// Like [`read_file`], for a path of several parts; also hands out the file.
pub fn read_file_beneath(
    root: BorrowedFd<'_>,
    path: &str,
    limit: usize,
) -> rustix::io::Result<(Content, Option<OwnedFd>)> {
    let name = path.rsplit('/').next().unwrap_or(path);
    read_opened(open_beneath(root, path, READ), name, limit)
}

fn read_opened(
    opened: rustix::io::Result<OwnedFd>,
    name: &str,
    limit: usize,
) -> rustix::io::Result<(Content, Option<OwnedFd>)> {
    let foreign = |what: &str| Ok((Content::Foreign(format!("{name} {what}").into()), None));
    let fd = match opened {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok((Content::Missing, None)),
        Err(Errno::LOOP | Errno::MLINK) => return foreign("is a symlink"),
        Err(Errno::NXIO | Errno::NODEV) => return foreign("is a socket or a device"),
        Err(errno) => return Err(errno),
    };
    let too_large = || format!("has more than {limit} bytes, the limit of this queue");
    // Most files fit on the stack, and leave it as no larger than they are.
    let mut small = [MaybeUninit::uninit(); 2048];
    let mut content = Vec::new();
    loop {
        let had = content.len();
        let read = if had == 0 {
            rustix::io::read(&fd, &mut small).map(|(filled, _)| {
                content.extend_from_slice(filled);
                filled.len() == 2048
            })
        } else {
            content.reserve(had);
            let room = content.capacity() - had;
            rustix::io::read(&fd, rustix::buffer::spare_capacity(&mut content))
                .map(|count| count == room)
        };
        match read {
            // A short read of a regular file is its end.
            Ok(false) => break,
            Ok(true) if content.len() > limit => return foreign(&too_large()),
            Ok(true) | Err(Errno::INTR) => {}
            Err(Errno::ISDIR) => return foreign("is a directory"),
            Err(Errno::AGAIN) => return foreign("is a FIFO"),
            Err(errno) => return Err(errno),
        }
    }
    if content.len() > limit {
        return foreign(&too_large());
    }
    if content.is_empty() && !is_regular(&fd)? {
        return foreign("is not a regular file");
    }
    Ok((Content::Whole(content), Some(fd)))
}

fn is_regular(fd: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(FileType::from_raw_mode(fs::fstat(fd)?.st_mode) == FileType::RegularFile)
}

/// Creates a file that must not exist yet, open for writing.
pub fn create_exclusive(dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, FILE_MODE)
}

/// Writes all of `bytes`.
pub fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Syncs a file or directory. After an error the pages may be lost: never ask twice.
pub fn sync(fd: &OwnedFd) -> rustix::io::Result<()> {
    fs::fsync(fd)
}

/// Has the kernel begin to write a file out, and does not wait for it.
///
/// A file system that allocates late may put a rename into its journal before the bytes of the file
/// that was renamed: after a power cut the name is there, and the file is empty. Once they have
/// their place on the disk, a journal in order writes them first. Where this can't be had, nothing
/// is lost but that.
pub fn begin_writing(fd: &OwnedFd) {
    #[cfg(target_os = "linux")]
    // SAFETY: the descriptor is open, and no memory is handed over.
    unsafe {
        libc::sync_file_range(fd.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = fd;
}

/// Syncs the whole file system that `fd` is on.
#[cfg(target_os = "linux")]
pub fn sync_filesystem(fd: &OwnedFd) -> rustix::io::Result<()> {
    fs::syncfs(fd)
}

/// Renames without replacing what is there.
pub fn rename_new(root: BorrowedFd<'_>, from: &str, to: &str) -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    match fs::renameat_with(root, from, root, to, fs::RenameFlags::NOREPLACE) {
        // Not every file system has the flag; a directory never replaces a non-empty one anyway.
        Err(Errno::INVAL | Errno::NOSYS) => {}
        other => return other,
    }
    match fs::renameat(root, from, root, to) {
        Err(Errno::NOTEMPTY | Errno::NOTDIR) => Err(Errno::EXIST),
        other => other,
    }
}

/// Whether anything stands at `path`; a symlink counts as itself.
pub fn exists(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<bool> {
    match fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Makes a directory if it is missing. True: it was.
pub fn ensure_dir(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<bool> {
    match fs::mkdirat(root, path, DIR_MODE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => open_dir_handle(root, path).map(|_| false),
        Err(errno) => Err(errno),
    }
}

/// Calls `visit` with the name and type of every entry of a directory, `.` and `..` left out.
pub fn each_entry(dir: &OwnedFd, mut visit: impl FnMut(&[u8], FileType)) -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let mut buffer = Vec::with_capacity(32 * 1024);
        let mut entries = fs::RawDir::new(dir, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                visit(name, entry.file_type());
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    for entry in fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            visit(name, entry.file_type());
        }
    }
    Ok(())
}

/// What the clock says that local file systems stamp files by: seconds and nanoseconds.
pub fn file_clock() -> (i64, i64) {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::RealtimeCoarse;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Realtime;
    let now = rustix::time::clock_gettime(clock);
    (now.tv_sec as _, now.tv_nsec as _)
}

/// Whether the file system is shared with other machines over a network.
#[cfg(target_os = "linux")]
pub fn is_network(fd: &OwnedFd) -> bool {
    // NFS, SMB, SMB2/CIFS, 9p, FUSE (sshfs, s3fs…), Ceph, GlusterFS rides on FUSE, AFS, Lustre;
    // VirtualBox and VMware folders, GFS2, OCFS2, GPFS, BeeGFS.
    const NETWORK: [u64; 15] = [
        0x6969,
        0x517b,
        0xfe53_4d42,
        0xff53_4d42,
        0x0102_1997,
        0x6573_5546,
        0x00c3_6400,
        0x5346_414f,
        0x0bd0_0bd0,
        0x786f_4256,
        0xbacb_acbc,
        0x0116_1970,
        0x7461_636f,
        0x4750_4653,
        0x1983_0326,
    ];
    fs::fstatfs(fd).is_ok_and(|s| NETWORK.contains(&(s.f_type as u64 & 0xffff_ffff)))
}

/// Whether the file system is shared with other machines over a network.
#[cfg(not(target_os = "linux"))]
pub fn is_network(_fd: &OwnedFd) -> bool {
    false
}
