//! Files that are written: new ones only, for their owner alone, hashed on the way.

use std::os::fd::OwnedFd;

use rustix::fs::{self, Mode, OFlags};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::sys;

const FULL: usize = 256 * 1024;

/// A new file.
pub struct Output {
    fd: OwnedFd,
    path: String,
    waiting: Vec<u8>,
    written: u64,
    hash: Sha256,
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its size.
    pub bytes: u64,
    /// Of its content, in hex digits.
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
            fd,
            path: path.to_owned(),
            waiting: Vec::with_capacity(FULL + FULL / 4),
            written: 0,
            hash: Sha256::new(),
        })
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
        self.hash.update(&self.waiting);
        sys::write_all(&self.fd, &self.waiting)
            .map_err(|errno| Error::io("write", &self.path, errno))?;
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    /// Writes out the rest.
    pub fn finish(mut self) -> Result<(Written, OwnedFd)> {
        self.flush()?;
        let sha256 = self.hash.finalize();
        let written = Written {
            bytes: self.written,
            sha256: sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        Ok((written, self.fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").to_str().unwrap().to_owned();
        let mut output = Output::create(&path).unwrap();
        let line = [b'x'; 1000];
        for _ in 0..1000 {
            output.write(&line).unwrap();
        }
        assert_eq!(output.position(), 1_000_000);
        let (written, _) = output.finish().unwrap();
        let content = std::fs::read(&path).unwrap();
        assert_eq!(content, vec![b'x'; 1_000_000]);
        let expected: String = Sha256::digest(&content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!((written.bytes, written.sha256), (1_000_000, expected));
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
