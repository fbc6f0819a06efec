//! Files that are read: regular ones only, never through a symlink, and only as much of them as
//! there was when they were opened.

use std::os::fd::OwnedFd;

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result};

/// A file open for reading.
pub struct Input {
    fd: OwnedFd,
    path: String,
    size: u64,
    left: u64,
}

/// Why a file was not opened.
#[derive(Debug)]
pub enum Refusal {
    /// Nothing is there.
    Missing,
    /// Something that is no regular file; the text says what.
    NotAFile(&'static str),
    /// The system's answer.
    Failed(Errno),
}

impl Refusal {
    /// As an error about `path`.
    pub fn into_error(self, path: &str) -> Error {
        match self {
            Refusal::Missing => Error::new(
                Kind::NotFound,
                format!("{path} is not there; check the name"),
            ),
            Refusal::NotAFile(what) => Error::new(
                Kind::Invalid,
                format!("{path} is {what}; only regular files are read"),
            ),
            Refusal::Failed(errno) => Error::io("read", path, errno),
        }
    }
}

impl Input {
    /// Opens a regular file; its size from now on is the size it has now.
    pub fn open(path: &str) -> std::result::Result<Input, Refusal> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => Refusal::Missing,
            Errno::LOOP | Errno::MLINK => Refusal::NotAFile("a symlink"),
            Errno::NXIO | Errno::NODEV => Refusal::NotAFile("a socket or a device"),
            other => Refusal::Failed(other),
        })?;
        let status = fs::fstat(&fd).map_err(Refusal::Failed)?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => Ok(Input::of(fd, path.to_owned(), status.st_size as u64)),
            FileType::Directory => Err(Refusal::NotAFile("a directory")),
            FileType::Fifo => Err(Refusal::NotAFile("a FIFO")),
            _ => Err(Refusal::NotAFile("a socket or a device")),
        }
    }

    /// The first `size` bytes of an open file.
    pub fn of(fd: OwnedFd, path: String, size: u64) -> Input {
        let left = size;
        Input {
            fd,
            path,
            size,
            left,
        }
    }

    /// What it is called.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How large it was when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How much of it was not read yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Reads into `room`; 0: the end.
    pub fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(room.len());
        if most == 0 {
            return Ok(0);
        }
        loop {
            let at = self.size - self.left;
            match rustix::io::pread(&self.fd, &mut room[..most], at) {
                Ok(0) => {
                    self.left = 0;
                    return Ok(0);
                }
                Ok(count) => {
                    self.left -= count as u64;
                    return Ok(count);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io("read", &self.path, errno)),
            }
        }
    }

    /// Goes to a place; reading goes on from there.
    pub fn seek(&mut self, at: u64) {
        self.left = self.size - at.min(self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_there_when_it_was_opened_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grows");
        std::fs::write(&path, "abc").unwrap();
        let mut input = Input::open(path.to_str().unwrap()).unwrap();
        std::fs::write(&path, "abcdef").unwrap();
        let mut room = [0; 16];
        assert_eq!(input.read(&mut room).unwrap(), 3);
        assert_eq!(input.read(&mut room).unwrap(), 0);
    }

    #[test]
    fn nothing_but_a_regular_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        fs::mkfifoat(fs::CWD, at("fifo"), mode).unwrap();
        let what = |name: &str| match Input::open(&at(name)) {
            Err(Refusal::NotAFile(what)) => what,
            Err(Refusal::Missing) => "missing",
            _ => "other",
        };
        assert_eq!(what("link"), "a symlink");
        assert_eq!(what("fifo"), "a FIFO");
        assert_eq!(what(""), "a directory");
        assert_eq!(what("none"), "missing");
        assert_eq!(what("file"), "other");
    }
}
