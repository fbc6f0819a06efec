//! Hashes and writes what is handed over: at first where it is handed over, then, as the file is
//! large, on a thread of its own, so that who makes the bytes need not wait.
//!
//! Two buffers go round: one is filled while the other one is hashed and written.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread::{Builder, JoinHandle};

use sha2::{Digest, Sha256};

use crate::error::{Error, Kind, Result};
use crate::sys;

/// A file, and the hash of what was written to it, if it is wanted.
pub struct Hashed {
    fd: OwnedFd,
    path: String,
    hash: Option<Sha256>,
}

impl Hashed {
    /// A file that is empty yet.
    pub fn new(fd: OwnedFd, path: &str) -> Hashed {
        Hashed {
            fd,
            path: path.to_owned(),
            hash: Some(Sha256::new()),
        }
    }

    /// Leaves the hash out.
    pub fn without_hash(self) -> Hashed {
        Hashed { hash: None, ..self }
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        sys::write_all(&self.fd, bytes).map_err(|errno| Error::io("write", &self.path, errno))
    }

    /// The file, and the sha256 in hex digits; empty if it was left out.
    pub fn finish(self) -> (OwnedFd, String) {
        let sha256 = self.hash.map(Digest::finalize);
        let sha256 = sha256
            .iter()
            .flatten()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        (self.fd, sha256)
    }
}

/// The thread. It ends with the first error, or when it is given no more.
pub struct Beside {
    /// None once it was asked to end.
    work: Option<SyncSender<Vec<u8>>>,
    done: Receiver<Vec<u8>>,
    thread: Option<JoinHandle<Result<Hashed>>>,
}

impl Beside {
    /// Starts it, and gives it the file. Without a thread to be had, the file stays where it is.
    pub fn start(file: &mut Option<Hashed>) -> Option<Beside> {
        let (give, given) = sync_channel::<Hashed>(1);
        let (work, todo) = sync_channel::<Vec<u8>>(1);
        let (give_back, done) = sync_channel(2);
        // The second buffer.
        let _ = give_back.send(Vec::new());
        let run = move || {
            let mut file = given.recv().expect("the file comes first");
            for mut bytes in todo {
                file.write(&bytes)?;
                bytes.clear();
                let _ = give_back.send(bytes);
            }
            Ok(file)
        };
        let builder = Builder::new().name("dfq-hash".to_owned());
        let thread = builder.spawn(run).ok()?;
        let _ = give.send(file.take()?);
        Some(Beside {
            work: Some(work),
            done,
            thread: Some(thread),
        })
    }

    /// Hands over what `bytes` has, and puts an empty buffer there.
    pub fn write(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        if let Ok(empty) = self.done.recv() {
            let full = std::mem::replace(bytes, empty);
            if self
                .work
                .as_ref()
                .is_some_and(|work| work.send(full).is_ok())
            {
                return Ok(());
            }
        }
        // It has ended early, and only an error makes it do so.
        self.end().map(|_| ())
    }

    /// Waits until all is written.
    pub fn finish(mut self) -> Result<Hashed> {
        self.end()
    }

    fn end(&mut self) -> Result<Hashed> {
        self.work = None;
        let Some(thread) = self.thread.take() else {
            let message = "the file could not be written before; make it anew";
            return Err(Error::new(Kind::Unavailable, message));
        };
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Beside {
    /// Nothing is written any more after whoever gave up.
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
