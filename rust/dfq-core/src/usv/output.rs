//! Files that are written: new ones only, for their owner alone, hashed on the way.

use std::os::fd::OwnedFd;

use rustix::fs::{self, Mode, OFlags};

use super::hashing::{Beside, Hashed};
use crate::error::{Error, Result};

const FULL: usize = 256 * 1024;

/// A new file.
pub struct Output {
    /// None once a thread has it.
    file: Option<Hashed>,
    beside: Option<Beside>,
    may_start_thread: bool,
    waiting: Vec<u8>,
    written: u64,
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its size.
    pub bytes: u64,
    /// Of its content, in hex digits; empty if it was left out.
    pub sha256: String,
}

impl Output {
    /// Creates a file that must not be there yet.
    pub fn create(path: &str) -> Result<Output> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| Error::io("create", path, errno))?;
        Ok(Output {
            file: Some(Hashed::new(fd, path)),
            beside: None,
            may_start_thread: false,
            waiting: Vec::with_capacity(FULL + FULL / 4),
            written: 0,
        })
    }

    /// Leaves the hash out: for what is read again by nobody else.
    pub fn without_hash(mut self) -> Output {
        self.file = self.file.map(Hashed::without_hash);
        self
    }

    /// Lets a thread hash and write it once it is large. Only for what is written within one call:
    /// a process that is forked meanwhile has the output, but not the thread.
    pub fn with_thread(mut self) -> Output {
        self.may_start_thread = true;
        self
    }

    /// Where to append what is to be written; call [`Output::settle`] now and then.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.waiting
    }

    /// Writes out what waits, if it is much.
    #[inline]
    pub fn settle(&mut self) -> Result<()> {
        if self.waiting.len() >= FULL {
            self.flush()?;
        }
        Ok(())
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.waiting.extend_from_slice(bytes);
        self.settle()
    }

    /// Where the next byte will stand.
    pub fn position(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    fn flush(&mut self) -> Result<()> {
        // Whoever gets here a second time writes much.
        if self.may_start_thread && self.written > 0 && self.beside.is_none() {
            self.beside = Beside::start(&mut self.file);
        }
        self.written += self.waiting.len() as u64;
        if let Some(beside) = &mut self.beside {
            return beside.write(&mut self.waiting);
        }
        if let Some(file) = &mut self.file {
            file.write(&self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }

    /// Writes out the rest.
    pub fn finish(mut self) -> Result<(Written, OwnedFd)> {
        // The last piece is not worth a thread.
        self.may_start_thread = false;
        self.flush()?;
        let (fd, sha256) = match (self.beside, self.file) {
            (Some(beside), _) => beside.finish()?.finish(),
            (None, Some(file)) => file.finish(),
            (None, None) => unreachable!("one of them has the file"),
        };
        let bytes = self.written;
        Ok((Written { bytes, sha256 }, fd))
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::error::Kind;

    fn told_and_written(size: usize, with_thread: bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").to_str().unwrap().to_owned();
        let mut output = Output::create(&path).unwrap();
        output.may_start_thread = with_thread;
        let expected: Vec<u8> = (0..size).map(|at| (at / 997) as u8).collect();
        for piece in expected.chunks(1000) {
            output.write(piece).unwrap();
        }
        assert_eq!(output.position(), size as u64);
        assert_eq!(output.beside.is_some(), with_thread && size >= 2 * FULL);
        let (written, _) = output.finish().unwrap();
        assert!(std::fs::read(&path).unwrap() == expected);
        let sha256: String = Sha256::digest(&expected)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!((written.bytes, written.sha256), (size as u64, sha256));
    }

    #[test]
    fn the_hash_is_that_of_the_content_whoever_writes_it() {
        for size in [0, 1, FULL, 2 * FULL + 1000, 10 * FULL + 1] {
            told_and_written(size, false);
            told_and_written(size, true);
        }
    }

    #[test]
    fn an_error_of_the_thread_is_told_and_ends_it() {
        let full = fs::open("/dev/full", OFlags::WRONLY, Mode::empty()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").to_str().unwrap().to_owned();
        let mut output = Output::create(&path).unwrap().with_thread();
        output.file = Some(Hashed::new(full, "full"));
        // As if the first piece had been written.
        output.written = 1;
        let piece = vec![0; FULL];
        let error = (0..4).find_map(|_| output.write(&piece).err()).unwrap();
        assert_eq!(error.kind, Kind::DiskFull);
        assert!(output.finish().is_err());
    }

    #[test]
    fn nothing_that_is_there_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old").to_str().unwrap().to_owned();
        std::fs::write(&path, "mine").unwrap();
        assert!(Output::create(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
