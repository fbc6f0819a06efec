//! One error type. Its kind says what the caller must do; its message says what happened.

use std::fmt;

/// What went wrong, in the caller's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The input is wrong: mend it.
    Invalid,
    /// The task would wait for itself.
    Cycle,
    /// There is no such task.
    NotFound,
    /// The task is in a state that does not allow this.
    WrongState,
    /// Somebody else holds the task.
    LeaseTaken,
    /// Nobody holds the task, this caller included.
    LeaseNotHeld,
    /// The task is completed already.
    Completed,
    /// A lock was held for too long.
    Busy,
    /// No space left.
    DiskFull,
    /// The queue can't be read or written.
    Unavailable,
    /// A newer version made this queue.
    LayoutTooNew,
    /// A file that only dfq writes is not as dfq writes it.
    Damaged,
}

impl Kind {
    /// The name under which the kind crosses into other languages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid",
            Kind::Cycle => "cycle",
            Kind::NotFound => "not_found",
            Kind::WrongState => "wrong_state",
            Kind::LeaseTaken => "lease_taken",
            Kind::LeaseNotHeld => "lease_not_held",
            Kind::Completed => "completed",
            Kind::Busy => "busy",
            Kind::DiskFull => "disk_full",
            Kind::Unavailable => "unavailable",
            Kind::LayoutTooNew => "layout_too_new",
            Kind::Damaged => "damaged",
        }
    }
}

/// An error of the file queue.
#[derive(Debug, Clone)]
pub struct Error {
    /// What the caller must do about it.
    pub kind: Kind,
    /// What happened, for a person.
    pub message: String,
    out_of_handles: bool,
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a kind, with its message.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error {
            kind,
            message: message.into(),
            out_of_handles: false,
        }
    }

    /// Whether it would help to close files.
    pub fn is_out_of_handles(&self) -> bool {
        self.out_of_handles
    }

    /// A failed system call: what was tried, on what.
    pub fn io(doing: &str, on: &str, errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let (kind, advice) = match errno {
            Errno::NOSPC | Errno::DQUOT => {
                (Kind::DiskFull, "free some space; what was pushed is safe")
            }
            Errno::ROFS => (
                Kind::Unavailable,
                "the disk is read-only; remount it or check it",
            ),
            Errno::ACCESS | Errno::PERM => (
                Kind::Unavailable,
                "check who owns the folder and its permissions",
            ),
            Errno::IO => (Kind::Unavailable, "the disk reports an error; check it"),
            Errno::MFILE | Errno::NFILE => (Kind::Unavailable, "raise the limit of open files"),
            _ => (Kind::Unavailable, "check the folder"),
        };
        let reason = std::io::Error::from(errno);
        let mut error = Error::new(kind, format!("can't {doing} {on}: {reason}; {advice}"));
        error.out_of_handles = matches!(errno, Errno::MFILE | Errno::NFILE);
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
