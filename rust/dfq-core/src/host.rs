//! Who this process is, and whether another one is still alive.

use std::fs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Once;

static PID: AtomicU32 = AtomicU32::new(0);
static GENERATION: AtomicU64 = AtomicU64::new(0);

extern "C" fn note_process() {
    PID.store(std::process::id(), Ordering::Relaxed);
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

fn heed_forks() {
    static START: Once = Once::new();
    START.call_once(|| {
        // SAFETY: the handler stores numbers, which is safe in a child with one thread.
        unsafe { libc::pthread_atfork(None, None, Some(note_process)) };
        note_process();
    });
}

/// This process's number. Asked of the kernel once, and again in a forked child.
pub fn pid() -> u32 {
    heed_forks();
    PID.load(Ordering::Relaxed)
}

/// Grows with every fork on the way to this process.
pub fn generation() -> u64 {
    heed_forks();
    GENERATION.load(Ordering::Relaxed)
}

/// What a lease says about its holder's process, so that others can tell whether it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The machine's name.
    pub host: String,
    /// New at every boot; empty when the system has none.
    pub boot_id: String,
    /// This process.
    pub pid: u32,
    /// When it started, in kernel ticks since boot; tells a reused pid from the old one.
    pub pid_start: Option<u64>,
    /// The pid namespace; a pid means nothing outside of it.
    pub pid_namespace: Option<u64>,
}

impl Identity {
    /// This process, as it is now (a fork changes it).
    pub fn current() -> Self {
        let pid = pid();
        Identity {
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            boot_id: boot_id(),
            pid,
            pid_start: process(pid).and_then(|p| p.start),
            pid_namespace: pid_namespace(),
        }
    }
}

/// What became of a process named in a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It is certainly gone.
    Gone,
    /// It runs, or nothing can be said.
    MayLive,
}

/// Whether the process of a lease from this boot and this pid namespace still lives.
pub fn life_of(pid: u32, pid_start: Option<u64>) -> Life {
    let Some(raw) = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return Life::MayLive;
    };
    // The signal 0 asks the kernel itself: a /proc that hides other users' processes can't lie.
    if rustix::process::test_kill_process(raw) == Err(rustix::io::Errno::SRCH) {
        return Life::Gone;
    }
    match process(pid) {
        // A zombie has ended; only its parent has not looked yet.
        Some(p) if p.ended => Life::Gone,
        Some(p) if p.start.is_some() && pid_start.is_some() && p.start != pid_start => Life::Gone,
        _ => Life::MayLive,
    }
}

struct Process {
    start: Option<u64>,
    ended: bool,
}

fn process(pid: u32) -> Option<Process> {
    // Its first thread's, which says the same. qemu-user makes up `/proc/<pid>/stat` for the
    // process itself, with another start than the one that everybody else sees.
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything, so count from the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let ended = matches!(fields.next(), Some("Z" | "X" | "x"));
    Some(Process {
        start: fields.nth(18).and_then(|s| s.parse().ok()),
        ended,
    })
}

fn pid_namespace() -> Option<u64> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?
        .strip_prefix("pid:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(target_os = "linux")]
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|s| s.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(target_os = "macos")]
fn boot_id() -> String {
    let mut buffer = [0u8; 64];
    let mut length = buffer.len();
    // SAFETY: the name is NUL-terminated, and the buffer is as long as `length` says.
    let status = unsafe {
        libc::sysctlbyname(
            c"kern.bootsessionuuid".as_ptr(),
            buffer.as_mut_ptr().cast(),
            &mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    if status != 0 {
        return String::new();
    }
    String::from_utf8_lossy(&buffer[..length])
        .trim_end_matches('\0')
        .to_owned()
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn boot_id() -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives() {
        let me = Identity::current();
        assert_eq!(life_of(me.pid, me.pid_start), Life::MayLive);
    }

    #[test]
    fn a_reused_pid_is_not_the_old_process() {
        let me = Identity::current();
        assert_eq!(life_of(me.pid, me.pid_start.map(|s| s + 1)), Life::Gone);
    }

    #[test]
    fn an_ended_child_is_gone_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let start = process(pid).and_then(|p| p.start);
        // Not reaped yet: the entry in /proc stays as a zombie.
        while life_of(pid, start) == Life::MayLive {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(life_of(pid, start), Life::Gone);
    }
}
