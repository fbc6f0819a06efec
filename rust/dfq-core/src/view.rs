//! Whether a directory was read since it last changed: told by its mtime.
//!
//! A change in the same clock tick as the read leaves the mtime as it was, so a directory is
//! trusted only once it was read a tick after its mtime, or after that was first seen.

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::root::Root;
use crate::sys;
use crate::time::Now;

/// Kernels stamp files by a tick of at most 10 ms.
const FINE_TICK_MS: i64 = 20;
/// File systems without fractions of a second: FAT counts in twos.
const COARSE_TICK_MS: i64 = 2_500;
/// What is known of a directory's contents, by its mtime.
#[derive(Clone, Copy, Default)]
pub struct View {
    /// Its mtime when it was looked at; None: it was not there.
    pub mtime: Option<(i64, i64)>,
    /// When that mtime was first seen.
    pub seen_boot_ms: i64,
    /// Whether a change since would have another mtime.
    pub settled: bool,
}

impl View {
    /// A view of a directory that is about to be read. `stamps`: what the clock that stamps
    /// files says, if known: a mtime clearly before it will not be given again.
    pub fn new(mtime: Option<(i64, i64)>, stamps: Option<(i64, i64)>, now: Now) -> View {
        let mut view = View {
            mtime,
            seen_boot_ms: now.boot_ms,
            settled: false,
        };
        if let (Some(mtime), Some(stamps)) = (mtime, stamps) {
            let age_ms = (stamps.0 - mtime.0) * 1000 + (stamps.1 - mtime.1) / 1_000_000;
            view.settled = age_ms >= view.tick_ms();
        }
        view
    }

    /// Whether a directory must be read (again), which the caller then does.
    pub fn moved(&mut self, root: &Root, path: &str, now: Now) -> Result<bool> {
        let mtime = match fs::statat(root.fd(), path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(mtime_of(&stat)),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(Error::io("look at", path, errno)),
        };
        if mtime.is_none() || (self.settled && self.mtime == mtime) {
            return Ok(false);
        }
        let stamps = (!root.is_network()).then(sys::file_clock);
        *self = View::new(mtime, stamps, now);
        Ok(true)
    }

    /// How long one mtime may stand for several changes.
    pub fn tick_ms(&self) -> i64 {
        match self.mtime {
            Some((_, 0)) => COARSE_TICK_MS,
            _ => FINE_TICK_MS,
        }
    }
}

/// The mtime of a file, in seconds and nanoseconds.
#[allow(clippy::unnecessary_cast)] // The widths differ between systems.
pub fn mtime_of(stat: &fs::Stat) -> (i64, i64) {
    (stat.st_mtime as i64, stat.st_mtime_nsec as i64)
}
