//! Waking up when the folder changes: inotify where there is one, else a pipe to be woken by.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fs::Timespec;
use rustix::io::Errno;

/// Where something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The queue folder: pause, resume.
    Root,
    /// lanes/: a priority other than normal came into use.
    Lanes,
    /// pending/: a shard was made.
    PendingTop,
    /// A shard of pending/: tasks came, or one was given back.
    Pending(u8),
    /// A shard of completed/: a task that others wait for may be done.
    Completed(u8),
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// Something of this name came to a target; an empty name: the target itself was touched.
    Came(Target, Vec<u8>),
    /// Too much happened: look at everything again.
    Overflow,
}

/// Ends every wait when told to.
#[derive(Default)]
pub struct Bell(Mutex<Waiters>);

#[derive(Default)]
struct Waiters {
    /// It rang while nobody waited.
    rung: bool,
    /// A claim left something behind while nobody waited.
    left: bool,
    waiting: Vec<Arc<Pipe>>,
    idle: Vec<Arc<Pipe>>,
}

/// Pipes of waits that ended are used again, up to so many.
const IDLE_PIPES: usize = 8;

/// What one waiting thread is woken by.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    fn new() -> rustix::io::Result<Pipe> {
        #[cfg(target_os = "linux")]
        let (read, write) = {
            use rustix::pipe::PipeFlags;
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?
        };
        #[cfg(not(target_os = "linux"))]
        let (read, write) = rustix::pipe::pipe()?;
        Ok(Pipe { read, write })
    }
}

impl Bell {
    /// Ends the waits that are under way, or else the next one.
    pub fn ring(&self) {
        let mut waiters = self.0.lock();
        waiters.rung = waiters.waiting.is_empty();
        waiters.wake();
    }

    /// Notes what a claim left behind: whether anything, and whether others don't know of it.
    /// Then the waits that are under way end, or else the next one.
    pub fn leave(&self, anything: bool, unknown: bool) {
        let mut waiters = self.0.lock();
        waiters.left &= anything;
        if unknown {
            waiters.left = waiters.waiting.is_empty();
            waiters.wake();
        }
    }

    /// Waits until the bell rings, `fd` has something, or the time is up. True: not the time.
    pub fn wait(&self, fd: Option<&Arc<OwnedFd>>, timeout_ms: i64) -> rustix::io::Result<bool> {
        let pipe = {
            let mut waiters = self.0.lock();
            let (rung, left) = (waiters.rung, waiters.left);
            (waiters.rung, waiters.left) = (false, false);
            if rung || left {
                return Ok(true);
            }
            let pipe = match waiters.idle.pop() {
                Some(pipe) => pipe,
                None => Arc::new(Pipe::new()?),
            };
            waiters.waiting.push(Arc::clone(&pipe));
            pipe
        };
        let woken = wait_for(&pipe, fd, timeout_ms);
        let mut waiters = self.0.lock();
        waiters.waiting.retain(|one| !Arc::ptr_eq(one, &pipe));
        // One that was written to is not used again: what is in it would end the next wait.
        if !woken && waiters.idle.len() < IDLE_PIPES {
            waiters.idle.push(pipe);
        }
        Ok(woken)
    }
}

impl Waiters {
    fn wake(&mut self) {
        for pipe in self.waiting.drain(..) {
            // A new pipe has room for a byte.
            let _ = rustix::io::write(&pipe.write, b"!");
        }
    }
}

fn wait_for(pipe: &Pipe, fd: Option<&Arc<OwnedFd>>, timeout_ms: i64) -> bool {
    let timeout_ms = timeout_ms.max(0);
    let timeout = Timespec {
        tv_sec: timeout_ms / 1000,
        tv_nsec: (timeout_ms % 1000 * 1_000_000) as _,
    };
    let mut fds = vec![PollFd::new(&pipe.read, PollFlags::IN)];
    if let Some(fd) = fd {
        fds.push(PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
    }
    // A signal ends it too: let the caller look around.
    poll(&mut fds, Some(&timeout)) != Ok(0)
}

#[cfg(target_os = "linux")]
pub use linux::Watch;

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use std::collections::HashMap;
    use std::mem::MaybeUninit;

    /// An inotify instance and what its watches stand for.
    pub struct Watch {
        fd: Arc<OwnedFd>,
        targets: HashMap<i32, Target>,
    }

    impl Watch {
        /// A new instance, or the reason why there can be none (limits, old kernels).
        pub fn new() -> rustix::io::Result<Watch> {
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            Ok(Watch {
                fd: Arc::new(fd),
                targets: HashMap::new(),
            })
        }

        /// For [`wait`].
        pub fn fd(&self) -> &Arc<OwnedFd> {
            &self.fd
        }

        /// Starts to watch a directory. Watching it twice is the same as once.
        pub fn add(&mut self, dir: &OwnedFd, target: Target) -> rustix::io::Result<()> {
            use std::os::fd::AsRawFd;
            let mut flags = WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::ONLYDIR;
            match target {
                Target::Pending(_) => flags |= WatchFlags::ATTRIB,
                Target::Root => flags |= WatchFlags::DELETE | WatchFlags::DELETE_SELF,
                Target::Lanes | Target::PendingTop | Target::Completed(_) => {}
            }
            // By handle, not by path: the queue may be opened by a relative one.
            let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
            let number = inotify::add_watch(&*self.fd, path, flags)?;
            self.targets.insert(number, target);
            Ok(())
        }

        /// Whether a target is watched.
        pub fn has(&self, target: Target) -> bool {
            self.targets.values().any(|known| *known == target)
        }

        /// Takes what happened since the last call.
        pub fn drain(&mut self) -> Vec<Event> {
            let mut events = Vec::new();
            let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
            let mut reader = inotify::Reader::new(&*self.fd, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                        events.push(Event::Overflow);
                    }
                    Ok(event) => {
                        let Some(target) = self.targets.get(&event.wd()).copied() else {
                            continue;
                        };
                        let name = event.file_name().map(|n| n.to_bytes().to_vec());
                        if event.events().contains(ReadFlags::IGNORED) {
                            self.targets.remove(&event.wd());
                            events.push(Event::Overflow);
                            continue;
                        }
                        // Attributes of a task directory say nothing; those of the shard do.
                        if event.events().contains(ReadFlags::ATTRIB) && name.is_some() {
                            continue;
                        }
                        events.push(Event::Came(target, name.unwrap_or_default()));
                    }
                    Err(Errno::INTR) => {}
                    Err(_) => return events,
                }
            }
        }
    }
}

/// Where there is no inotify, there is nothing to make.
#[cfg(not(target_os = "linux"))]
pub struct Watch {
    fd: Arc<OwnedFd>,
}

#[cfg(not(target_os = "linux"))]
impl Watch {
    /// Always refuses: the caller polls instead.
    pub fn new() -> rustix::io::Result<Watch> {
        Err(Errno::NOSYS)
    }

    /// For [`wait`].
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Does nothing.
    pub fn add(&mut self, _dir: &OwnedFd, _target: Target) -> rustix::io::Result<()> {
        Err(Errno::NOSYS)
    }

    /// Nothing is watched.
    pub fn has(&self, _target: Target) -> bool {
        false
    }

    /// Nothing happens.
    pub fn drain(&mut self) -> Vec<Event> {
        Vec::new()
    }
}
