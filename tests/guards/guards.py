"""The guards: what must not go from the core, and the tests that notice.

A place names a function and a text that occurs once in it; run.py puts another text there.
Where a guard stands is for the sources to decide: run.py says which one it did not find.
"""

from __future__ import annotations

from dataclasses import dataclass

ORDER = "tests/acceptance/crash/test_durability_order.py"
MIDWAY = "tests/acceptance/crash/test_stopped_midway.py"
LOCKED = "tests/acceptance/crash/test_stopped_under_lock.py"
CALLS = "tests/acceptance/crash/test_every_system_call.py"
OLDER = "tests/acceptance/crash/test_older_kernel.py"
POWER = "tests/acceptance/pi/test_power_cut.py"
HOLD = "tests/guards/test_guards_hold.py"
MERGE = "tests/unit/usv/test_merge.py"


@dataclass(frozen=True)
class Place:
    """Where a guard stands, and what to put there."""

    file: str
    #: A text that occurs once: from its line to the end of the block. Nothing: the whole file.
    within: str
    text: str
    instead: str
    #: Put at the end of the file, if the change needs more than a line.
    extra: str = ""


@dataclass(frozen=True)
class Guard:
    """Something that must not go, and who notices."""

    name: str
    place: Place
    tests: str
    #: Only tests of this name (as pytest's -k), to be quick.
    only: str = ""


def one(name: str, file: str, within: str, text: str, instead: str, tests: str, only: str) -> Guard:
    """A guard that stands in one place."""
    return Guard(name, Place(file, within, text, instead), tests, only)


def lock(name: str, file: str, within: str, only: str, which: str = "usize::from(shard)") -> Guard:
    """A lock, in place of which one is taken that no other process wants."""
    change = (f"({which})", "(lock_of_my_own())")
    place = Place(file, within, *change, extra=LOCK_OF_MY_OWN)
    return Guard(f"lock: {name}", place, LOCKED, only)


#: None of the shards that the tests use is among them.
LOCK_OF_MY_OWN = """
fn lock_of_my_own() -> usize {
    63 + (std::process::id() % 100) as usize
}
"""
NO_SYNC = """
impl FileQueue {
    fn no_sync(_path: &str) -> Result<()> {
        Ok(())
    }
}
"""
SYNCED = "rustix::io::Result::Ok(())"
#: Opens a path as anybody would, through whatever symlinks there are.
FOLLOWING = """if true {
        let flags = flags.difference(OFlags::NOFOLLOW);
        return fs::openat(root, path, flags, Mode::empty());
    }
    if !NO_OPENAT2"""


LEASE_KEY = "/// What tells one lease"


def key_of(part: str) -> str:
    """A comparison of leases that looks at one part only."""
    return f"""
impl PartialEq for LeaseKey<'_> {{
    fn eq(&self, other: &Self) -> bool {{
        self.{part} == other.{part}
    }}
}}
"""


SYNCS = (
    one(
        "push syncs the file",
        *("queue/push.rs", "fn build(", "sys::sync(&file)?;", ""),
        *(ORDER, "a_push"),
    ),
    one(
        "push syncs the new directory",
        *("queue/push.rs", "fn build(", "sys::sync(&sys::open_dir(root, &scratch)?)?;", ""),
        *(ORDER, "a_push"),
    ),
    one(
        "push syncs a new shard",
        *("queue/mod.rs", "fn ensure_durable_shard", 'self.sync_dir("pending")?;', ""),
        *(ORDER, "a_push"),
    ),
    one(
        "push syncs a shard that another made",
        *("queue/mod.rs", "fn ensure_durable_shard", "made || !synced", "made && !synced"),
        *(ORDER, "another_process_made"),
    ),
    one(
        "a result is written out before its rename",
        *("root.rs", "pub fn try_replace(", "sys::begin_writing(&file);", ""),
        *(POWER, "at_any_moment"),
    ),
    Guard(
        "push syncs the shard after the rename",
        Place("queue/push.rs", "pub fn push(", "self.sync_dir(", "Self::no_sync(", NO_SYNC),
        *(ORDER, "a_push"),
    ),
    one(
        "push_many syncs before the renames",
        *("queue/push.rs", "pub fn push(", "self.sync_everything().inspect_err"),
        *("Result::Ok(()).inspect_err", ORDER, "push_many"),
    ),
    one(
        "push_many syncs after the renames",
        *("queue/push.rs", "pub fn push(", "self.sync_everything()\n", "Result::Ok(())\n"),
        *(ORDER, "push_many"),
    ),
    one(
        "a changed task is synced (nack, bury, requeue)",
        *("queue/mod.rs", "fn write_task(", "&nonce, true)", "&nonce, false)"),
        *(ORDER, "nack or requeue"),
    ),
    one(
        "what is to be synced is synced before its rename",
        *("root.rs", "pub fn try_replace", "sys::sync(&file)?;", ""),
        *(ORDER, "nack or requeue or state or pause"),
    ),
    one(
        "a state is synced",
        *(
            "queue/settle.rs",
            "pub fn save_state",
            '"state.json", state, true',
            '"state.json", state, false',
        ),
        *(ORDER, "state"),
    ),
    one(
        "a pause is synced",
        *("queue/mod.rs", "pub fn pause", "note, &nonce, true", "note, &nonce, false"),
        *(ORDER, "pause"),
    ),
    one(
        "a pause's rename is synced",
        *("queue/mod.rs", "pub fn pause", "sys::sync(self.root.handle())", SYNCED),
        *(ORDER, "pause"),
    ),
    Guard(
        "requeue syncs the shard",
        Place("queue/remove.rs", "pub fn requeue", "self.sync_dir(", "Self::no_sync(", NO_SYNC),
        *(ORDER, "requeue"),
    ),
    one(
        "requeue syncs a shard that is new",
        *("queue/remove.rs", "pub fn requeue", "self.ensure_durable_shard(shard)?"),
        *("self.root.ensure_shard(Area::Pending, shard)?", ORDER, "requeue"),
    ),
    one(
        "the areas are synced into the folder",
        *("root.rs", "pub fn open(", 'sys::sync(&handle).map_err(failed("sync"))?;', ""),
        *(ORDER, "area_that_was_missing"),
    ),
    one(
        "the folder is synced into its parent",
        *("root.rs", "fn sync_parent(", "sys::sync(&dir)", "Ok(drop(dir))"),
        *(ORDER, "first_push"),
    ),
    one(
        "the boot count is synced",
        *("boot.rs", "pub fn write", "sys::sync(&file)?;", ""),
        *(ORDER, "boot_count"),
    ),
    one(
        "the boot count's rename is synced",
        *("boot.rs", "pub fn write", "sys::sync(handle)", "Ok(())"),
        *(ORDER, "boot_count"),
    ),
    one(
        "the archive is synced before tasks go",
        *("archive.rs", "pub fn append", "sys::sync(&file).map_err(failed)?;", ""),
        *(ORDER, "archive"),
    ),
    one(
        "the archive's folder is synced",
        *("archive.rs", "pub fn append", '[folder, "completed"]', '["completed"]'),
        *(ORDER, "archive"),
    ),
    one(
        "the archive's folder is synced into its own",
        *("archive.rs", "pub fn append", '[folder, "completed"]', "[folder]"),
        *(ORDER, "archive"),
    ),
)

LOCKS = (
    Guard(
        "lock: the kernel's",
        Place("lock.rs", "", "F_SETLK, libc::F_WRLCK", "F_SETLK, libc::F_UNLCK"),
        *(LOCKED, "taking_over or nobody_elses"),
    ),
    Guard(
        "lock: of the file that stands there",
        Place("root.rs", "", "guard.file().stands_in(self.fd())", "true"),
        *(LOCKED, "was_deleted"),
    ),
    lock("nack and heartbeat", "queue/settle.rs", "fn hold", "nobody_elses"),
    lock("ack", "queue/settle.rs", "pub fn ack(", "taking_over"),
    lock("take-over", "queue/reap.rs", "fn reap(", "taking_over or nobody_elses"),
    lock("a claim that gives up", "queue/claim.rs", "fn fill_lease", "expired"),
    lock("a claim that takes back", "queue/claim.rs", "fn withdraw", "takes_its_lease_back"),
    lock("requeue", "queue/remove.rs", "pub fn requeue", "next_round"),
    lock("cancel", "queue/remove.rs", "pub fn fail(", "cancelled_or_purged"),
    lock("purge", "queue/remove.rs", "pub fn remove(", "cancelled_or_purged"),
    lock("push", "queue/push.rs", "fn place(", "looked_for_its_id", "usize::from(one.shard)"),
    lock("dependencies", "queue/push.rs", "pub fn push(", "circle", "lock::GRAPH"),
    lock("boot count", "root.rs", "", "boot_count", "lock::QUEUE"),
    lock("archive", "queue/sweep.rs", "fn archive_lot", "sweepers", "lock::QUEUE"),
    lock(
        *("purge of the archive", "queue/inspect.rs", "pub fn purge_archive", "cut_into"),
        "crate::lock::QUEUE",
    ),
)

CLAIMS = (
    Guard(
        "the fence is compared",
        Place("lease.rs", LEASE_KEY, "PartialEq, Eq, ", "", key_of("lease_id")),
        *(HOLD, "fence_or_nonce"),
    ),
    Guard(
        "the nonce of the lease is compared",
        Place("lease.rs", LEASE_KEY, "PartialEq, Eq, ", "", key_of("fence")),
        *(HOLD, "fence_or_nonce"),
    ),
    Guard(
        "ack checks its lease",
        Place("queue/settle.rs", "fn read_own_lease", ".as_ref() == Some(key)", ".is_some()"),
        *(HOLD, "fence_or_nonce and ack"),
    ),
    one(
        "ack looks whether a lease that it kept open still stands",
        *("kept.rs", "pub fn take_standing", "(identity(&stat) ==", "(true || identity(&stat) =="),
        *(MIDWAY, "old_lease_is_refused"),
    ),
    Guard(
        "nack, heartbeat and the others check their lease",
        Place("queue/settle.rs", "fn hold", "lease.key() == key", "true"),
        *(HOLD, "fence_or_nonce and not ack"),
    ),
    one(
        "the fence is kept when a lease ends",
        *("queue/settle.rs", "fn end_lease", "task.fence = task.fence.max(lease.fence);", ""),
        *(HOLD, "fence_grows"),
    ),
    one(
        "the fence is kept when a task is buried",
        *("queue/settle.rs", "pub fn bury", "task.fence = task.fence.max(held.lease.fence);", ""),
        *(HOLD, "fence_grows"),
    ),
    one(
        "the fence is kept when a task is requeued",
        *("queue/remove.rs", "pub fn requeue", "task.fence = task.fence.max(lease.fence);", ""),
        *(HOLD, "fence_grows"),
    ),
    one(
        "fences of a new boot start above those of the old",
        *("root.rs", "", "self.first_fence", "0"),
        *(HOLD, "new_boot"),
    ),
    one(
        "a lease is created exclusively",
        *("sys.rs", "pub fn create_exclusive", " | OFlags::EXCL", ""),
        *(HOLD, "two_handles"),
    ),
    one(
        "a claimer looks whether its lease was replaced",
        *("queue/claim.rs", "fn fill_lease", "stat.st_nlink == 0", "stat.st_nlink == 77"),
        *(MIDWAY, "slept_through"),
    ),
    one(
        "a claimer takes back its own lease only",
        *("queue/claim.rs", "fn withdraw", "stat.st_nlink > 0", "stat.st_nlink < 77"),
        *(MIDWAY, "but_its_own"),
    ),
    one(
        "a new task replaces nothing",
        *("sys.rs", "pub fn rename_new", "RenameFlags::NOREPLACE", "RenameFlags::empty()"),
        *(MIDWAY, "does_not_replace"),
    ),
    one(
        "a crash counts as a delivery",
        *("queue/reap.rs", "fn reap(", "counts: true", "counts: false"),
        *(HOLD, "kills_its_worker"),
    ),
    one(
        "a result that was cut short is not the next one's",
        *("queue/settle.rs", "fn end_lease", '"result.json", AtFlags', '"no-such", AtFlags'),
        *(HOLD, "result_of_the_dead"),
    ),
    one(
        "a cancel that fails takes its lease back",
        *("queue/remove.rs", "pub fn fail(", "if own {", "if false && own {"),
        *(CALLS, "cancel-EIO"),
    ),
)

STALENESS = (
    one(
        "a lease of the living is left alone",
        *("lease.rs", "pub fn standing", "now.boot_ms >= self.expires_boot_ms", "true"),
        *(HOLD, "lease"),
    ),
    one(
        "a lease ends by time",
        *("lease.rs", "pub fn standing", "now.boot_ms >= self.expires_boot_ms", "false"),
        *(MIDWAY, "took_over or stood_still"),
    ),
    one(
        "a lease of the dead is ended at once",
        *("lease.rs", "pub fn standing", "== Life::Gone", "== Life::Gone && false"),
        *(HOLD, "lease"),
    ),
    one(
        "a pid that was given again is another process",
        *("host.rs", "pub fn life_of", "p.start != pid_start", "false"),
        *(HOLD, "lease"),
    ),
    one(
        "a pid counts in its own namespace only",
        *("lease.rs", "pub fn standing", "same_pids && host", "host"),
        *(HOLD, "lease"),
    ),
    one(
        "a lease of an earlier boot is over",
        *("lease.rs", "pub fn standing", "&& self.boot_id == me.boot_id", ""),
        *(HOLD, "lease"),
    ),
    one(
        "another machine's lease is judged by the age of its file",
        *("lease.rs", "pub fn standing", "self.host == me.host && boots_known", "boots_known"),
        *(HOLD, "lease"),
    ),
    one(
        "a torn lease gets a moment",
        *("queue/reap.rs", "fn judge(", "contains(&age)", "contains(&i64::MAX)"),
        *(HOLD, "torn_lease"),
    ),
)

BORDERS = (
    one(
        "ids are checked",
        *("id.rs", "pub fn is_valid", "!name.is_empty()", "true || !name.is_empty()"),
        *(HOLD, "id"),
    ),
    one(
        "no symlink is followed on the way",
        *("sys.rs", "fn open_beneath", "if !NO_OPENAT2", FOLLOWING),
        *(HOLD, "symlink"),
    ),
    one(
        "no symlink is followed on the way, without openat2",
        *("sys.rs", "fn open_beneath", "step | OFlags::NOFOLLOW", "step"),
        *(OLDER, ""),
    ),
    Guard(
        "no symlink is followed to a file",
        Place("sys.rs", "pub fn open_file", " | OFlags::NOFOLLOW", ""),
        *(HOLD, "symlink"),
    ),
    one(
        "no symlink is followed to the lock",
        *("lock.rs", "pub fn of(", "OFlags::NOFOLLOW | ", ""),
        *(HOLD, "symlink"),
    ),
    one(
        "no symlink is followed to the archive",
        *("archive.rs", "fn each_record_of", "OFlags::NOFOLLOW | ", ""),
        *(HOLD, "symlink"),
    ),
    Guard(
        "a FIFO blocks nobody",
        Place("sys.rs", "/// To read a file", ".union(OFlags::NONBLOCK)", ""),
        *(HOLD, "FIFO"),
    ),
    one(
        "another user's directory is no task",
        *("root.rs", "pub fn trusts_owner", "uid == self.owner", "true || uid == self.owner"),
        *(HOLD, "another_user"),
    ),
    one(
        "directories are for their owner only",
        *("sys.rs", "pub const DIR_MODE", "0o700", "0o777"),
        *(HOLD, "owner_only"),
    ),
    one(
        "files are for their owner only",
        *("sys.rs", "pub const FILE_MODE", "0o600", "0o666"),
        *(HOLD, "owner_only"),
    ),
    one(
        "the folder is for its owner only",
        *("root.rs", "fn make_folders", "0o700", "0o777"),
        *(HOLD, "owner_only"),
    ),
)

MERGES = (
    one(
        "merge: no symlink is followed to a shard or an inbox file",
        *("usv/file.rs", "pub fn open(", "OFlags::NOFOLLOW | ", ""),
        *(MERGE, "symlink"),
    ),
    one(
        "merge: a pipe in the inbox blocks nothing",
        *("usv/file.rs", "pub fn open(", "OFlags::NONBLOCK | ", ""),
        *(MERGE, "pipe"),
    ),
    one(
        "merge: a shard is in the order of its keys",
        *(
            "merge/sorted.rs",
            "fn look(",
            "key <= last_key",
            "false && key <= last_key",
        ),
        *(MERGE, "damaged_shard"),
    ),
    one(
        "merge: a shard without line feeds is never loaded",
        *(
            "merge/sorted.rs",
            "pub fn start(",
            "longest_canonical(rules.max_record_bytes, rules.columns)",
            "usize::MAX",
        ),
        *(MERGE, "without_line_feeds"),
    ),
    one(
        "merge: many rejects of an entry are told as one, whatever their kinds",
        *("merge/rejects.rs", "fn goes_on(", "!= name || (", "!= name || known.kind != kind || ("),
        *(MERGE, "many_kinds"),
    ),
    one(
        "merge: the last line of a shard is whole",
        *("merge/sorted.rs", "fn look(", "if self.framer.unended()", "if false"),
        *(MERGE, "damaged_shard"),
    ),
    one(
        "merge: a shard is UTF-8",
        *("merge/sorted.rs", "fn look(", "if !self.framer.is_text(&range)", "if false"),
        *(MERGE, "damaged_shard"),
    ),
    one(
        "merge: a record of the inbox is UTF-8",
        *("merge/inbox.rs", "fn entry(", "framer.is_text(&range)", "true"),
        *(MERGE, "bad_record"),
    ),
    one(
        "merge: a record has a greatest length",
        *("usv/framer.rs", "fn whole(", "range.len() > self.limit", "false"),
        *(MERGE, "bad_record"),
    ),
    one(
        "merge: a record that is too long is never held",
        *("usv/framer.rs", "pub fn next(", "self.scanned - self.start > self.limit", "false"),
        *(MERGE, "100_megabytes"),
    ),
    one(
        "merge: an output is a new file",
        *("usv/output.rs", "pub fn create(", "OFlags::EXCL | ", ""),
        *(MERGE, "not_overwritten"),
    ),
)

GUARDS = (*SYNCS, *LOCKS, *CLAIMS, *STALENESS, *BORDERS, *MERGES)
