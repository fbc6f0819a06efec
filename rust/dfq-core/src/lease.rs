//! lease.json: who holds a task, and whether that still counts.

use serde::{Deserialize, Serialize};

use crate::host::{self, Identity, Life};
use crate::time::{Now, Stamp};

/// One worker's claim on one task, as it stands in lease.json.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lease {
    /// The task.
    pub task_id: String,
    /// The holder's name.
    pub worker_id: String,
    /// New for every claim.
    pub lease_id: String,
    /// Grows with every lease on the task.
    pub fence: u64,
    /// Which delivery this is, from 1.
    pub attempt: u32,
    /// The holder's machine.
    pub host: String,
    /// The holder's boot.
    #[serde(default)]
    pub boot_id: String,
    /// The holder's process.
    pub pid: u32,
    /// When that process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_start: Option<u64>,
    /// The pid namespace in which `pid` means something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<u64>,
    /// For people.
    pub acquired_at: Stamp,
    /// For people.
    pub heartbeat_at: Stamp,
    /// For people.
    pub expires_at: Stamp,
    /// How long a lease lives after a heartbeat.
    #[serde(default)]
    pub lease_ms: i64,
    /// When it ends, on the boot clock of `boot_id`.
    #[serde(default)]
    pub expires_boot_ms: i64,
}

/// What tells one lease from all others.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct LeaseKey<'a> {
    /// New for every claim.
    pub lease_id: &'a str,
    /// Grows with every lease on the task.
    pub fence: u64,
}

impl<'a> LeaseKey<'a> {
    /// The key of a lease.json; None if it is torn or not ours.
    pub fn parse(content: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(content).ok()
    }
}

/// What another process makes of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It counts; look again at this boot time at the latest.
    Held {
        /// When it ends by itself, on this machine's boot clock; None: by the file's age only.
        until_boot_ms: Option<i64>,
    },
    /// It ended; the text says why.
    Stale(String),
}

impl Lease {
    /// A lease of this process that has no term yet: it is over unless it is renewed.
    pub fn new(
        id: &str,
        worker_id: String,
        lease_id: String,
        fence: u64,
        attempt: u32,
        me: &Identity,
        now: Now,
    ) -> Self {
        Lease {
            task_id: id.to_owned(),
            worker_id,
            lease_id,
            fence,
            attempt,
            host: me.host.clone(),
            boot_id: me.boot_id.clone(),
            pid: me.pid,
            pid_start: me.pid_start,
            pid_namespace: me.pid_namespace,
            acquired_at: Stamp(now.wall_ms),
            heartbeat_at: Stamp(now.wall_ms),
            expires_at: Stamp(now.wall_ms),
            lease_ms: 0,
            expires_boot_ms: now.boot_ms,
        }
    }

    /// Reads a lease.json; None if it is torn or not ours.
    pub fn parse(content: &[u8]) -> Option<Self> {
        serde_json::from_slice(content).ok()
    }

    /// What tells it from all others.
    pub fn key(&self) -> LeaseKey<'_> {
        LeaseKey {
            lease_id: &self.lease_id,
            fence: self.fence,
        }
    }

    /// As it is written to lease.json.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(512);
        // Strings and numbers always serialise.
        let _ = serde_json::to_writer(&mut bytes, self);
        bytes
    }

    /// Starts a new term at `now`.
    pub fn renew(&mut self, lease_ms: i64, now: Now) {
        self.heartbeat_at = Stamp(now.wall_ms);
        self.expires_at = Stamp(now.wall_ms.saturating_add(lease_ms));
        self.expires_boot_ms = now.boot_ms.saturating_add(lease_ms);
        self.lease_ms = lease_ms;
    }

    /// Judges the lease from this process.
    ///
    /// `age_ms` is how old the file is by the file system's own clock, for leases that another
    /// machine wrote; `network` says whether other machines may share the folder.
    pub fn standing(&self, me: &Identity, network: bool, age_ms: i64, now: Now) -> Standing {
        let same_boot = !self.boot_id.is_empty() && self.boot_id == me.boot_id;
        if same_boot {
            let same_pids = self.pid_namespace.is_some() && self.pid_namespace == me.pid_namespace;
            if same_pids && host::life_of(self.pid, self.pid_start) == Life::Gone {
                return Standing::Stale(format!(
                    "worker {} (process {} on {}) is gone",
                    self.worker_id, self.pid, self.host
                ));
            }
            if now.boot_ms >= self.expires_boot_ms {
                return Standing::Stale(format!(
                    "worker {} sent no heartbeat for {} s",
                    self.worker_id,
                    self.lease_ms / 1000
                ));
            }
            return Standing::Held {
                until_boot_ms: Some(self.expires_boot_ms),
            };
        }
        // A local disk belongs to one machine: its other boots are over. Over a network the
        // same name may be a second machine made from the same image, so only time counts.
        let boots_known = !me.boot_id.is_empty() && !self.boot_id.is_empty();
        if !network && self.host == me.host && boots_known {
            return Standing::Stale(format!(
                "worker {} was running before {} was started again",
                self.worker_id, self.host
            ));
        }
        if age_ms >= self.lease_ms {
            return Standing::Stale(format!(
                "worker {} on {} sent no heartbeat for {} s",
                self.worker_id,
                self.host,
                self.lease_ms / 1000
            ));
        }
        Standing::Held {
            until_boot_ms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Identity {
        Identity::current()
    }

    fn lease(of: &Identity) -> Lease {
        Lease {
            task_id: "a".into(),
            worker_id: "w".into(),
            lease_id: "n".into(),
            fence: 1,
            attempt: 1,
            host: of.host.clone(),
            boot_id: of.boot_id.clone(),
            pid: of.pid,
            pid_start: of.pid_start,
            pid_namespace: of.pid_namespace,
            acquired_at: Stamp(0),
            heartbeat_at: Stamp(0),
            expires_at: Stamp(0),
            lease_ms: 1_000,
            expires_boot_ms: 5_000,
        }
    }

    fn at(boot_ms: i64) -> Now {
        Now {
            wall_ms: 0,
            boot_ms,
        }
    }

    fn is_stale(standing: &Standing) -> bool {
        matches!(standing, Standing::Stale(_))
    }

    #[test]
    fn a_lease_of_this_boot_ends_by_the_boot_clock_whatever_the_wall_clock_says() {
        let held = lease(&me());
        for wall_ms in [0, i64::MAX / 2] {
            let now = Now {
                wall_ms,
                boot_ms: 4_999,
            };
            assert!(!is_stale(&held.standing(&me(), false, i64::MAX, now)));
        }
        assert!(is_stale(&held.standing(&me(), false, 0, at(5_000))));
    }

    #[test]
    fn a_lease_of_a_dead_process_is_stale_at_once() {
        let mut held = lease(&me());
        held.pid_start = held.pid_start.map(|s| s + 1);
        assert!(is_stale(&held.standing(&me(), false, 0, at(0))));
    }

    #[test]
    fn a_process_in_another_pid_namespace_is_judged_by_time_alone() {
        let mut held = lease(&me());
        held.pid_start = held.pid_start.map(|s| s + 1);
        held.pid_namespace = Some(1);
        assert!(!is_stale(&held.standing(&me(), false, 0, at(0))));
        assert!(is_stale(&held.standing(&me(), false, 0, at(5_000))));
        held.pid_namespace = None;
        assert!(!is_stale(&held.standing(&me(), false, 0, at(0))));
    }

    #[test]
    fn another_boot_of_this_machine_is_over() {
        let mut held = lease(&me());
        held.boot_id = "earlier".into();
        assert!(is_stale(&held.standing(&me(), false, 0, at(0))));
    }

    #[test]
    fn another_machine_is_judged_by_the_age_of_the_file() {
        let mut held = lease(&me());
        held.boot_id = "elsewhere".into();
        assert!(!is_stale(&held.standing(&me(), true, 999, at(i64::MAX))));
        assert!(is_stale(&held.standing(&me(), true, 1_000, at(0))));
        held.host = "other".into();
        assert!(!is_stale(&held.standing(&me(), false, 999, at(i64::MAX))));
    }
}
