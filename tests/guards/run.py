"""Take each guard out of the core once, and see a test go red.

    python tests/guards/run.py [--list] [NAME ...]

A guard is a line that no ordinary run needs: a sync, a lock, a check. Without a test that
fails when it is gone, the next clean-up may take it for dead weight. For each guard this
copies the sources, replaces the line, builds the extension beside the real one, and runs the
tests that are to notice. Exits with 1 if a guard can go without anybody noticing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
WORK = Path(tempfile.gettempdir()) / "dfq-guards"
TARGET = Path(tempfile.gettempdir()) / "dfq-guards-target"
SOURCES = ("Cargo.toml", "Cargo.lock", "clippy.toml", "README.md", "pyproject.toml", "rust")
CORE = "rust/dfq-core/src"
SECONDS = 300
#: A line is looked for this many characters behind its landmark: a function's length.
REACH = 4_000

ORDER = "tests/acceptance/crash/test_durability_order.py"
MIDWAY = "tests/acceptance/crash/test_stopped_midway.py"
HOLD = "tests/guards/test_guards_hold.py"


#: Opens a directory as anybody would, through whatever symlinks there are.
FOLLOWING = """if true {
        let flags = flags.difference(OFlags::NOFOLLOW);
        return fs::openat(root, path, flags, Mode::empty());
    }
    if !NO_OPENAT2"""


@dataclass(frozen=True)
class Guard:
    """A line that must not go, and who notices."""

    name: str
    file: str
    #: The line is looked for behind this text, which occurs once.
    behind: str
    line: str
    instead: str
    tests: str
    #: Only tests of this name (as pytest's -k), to be quick.
    only: str = ""


GUARDS = (
    Guard(
        "push syncs the file",
        *("queue/push.rs", "fn build(", "sys::sync(&file)?;", ""),
        *(ORDER, "a_push"),
    ),
    Guard(
        "push syncs the new directory",
        *("queue/push.rs", "fn build(", "sys::sync(&sys::open_dir(root, &scratch)?)?;", ""),
        *(ORDER, "a_push"),
    ),
    Guard(
        "push syncs a new shard",
        *("queue/push.rs", "fn build(", 'self.sync_dir("pending")?;', ""),
        *(ORDER, "a_push"),
    ),
    Guard(
        "push syncs the shard after the rename",
        *("queue/push.rs", "let synced = if group", "self.sync_dir(", "Self::no_sync("),
        *(ORDER, "a_push"),
    ),
    Guard(
        "push_many syncs before the renames",
        *("queue/push.rs", "let mut built = ", "self.sync_everything()", "Result::Ok(())"),
        *(ORDER, "push_many"),
    ),
    Guard(
        "push_many syncs after the renames",
        *("queue/push.rs", "let synced = if group", "self.sync_everything()", "Result::Ok(())"),
        *(ORDER, "push_many"),
    ),
    Guard(
        "a changed task is synced (nack, bury, requeue)",
        *("root.rs", "fn try_replace", "sys::sync(&file)?;", ""),
        *(ORDER, "nack or requeue"),
    ),
    Guard(
        "requeue syncs the shard",
        *("queue/remove.rs", "pub fn requeue", "self.sync_dir(", "Self::no_sync("),
        *(ORDER, "requeue"),
    ),
    Guard(
        "the first use syncs the folder",
        *("root.rs", "if made {", 'sys::sync(&handle).map_err(failed("sync"))?;', ""),
        *(ORDER, "first_push"),
    ),
    Guard(
        "the boot count is synced",
        *("root.rs", "fn first_fence_of_this_boot", "sys::sync(&file)?;", ""),
        *(ORDER, "boot_count"),
    ),
    Guard(
        "the boot count's rename is synced",
        *("root.rs", "fn first_fence_of_this_boot", "sys::sync(handle)", "Ok(())"),
        *(ORDER, "boot_count"),
    ),
    Guard(
        "the archive is synced before tasks go",
        *("archive.rs", "pub fn append", "sys::sync(&file).map_err(failed)?;", ""),
        *(ORDER, "archive"),
    ),
    Guard(
        "the archive's folder is synced",
        *("archive.rs", "pub fn append", "sys::sync(&dir).map_err(failed)", "Ok(drop(dir))"),
        *(ORDER, "archive"),
    ),
    Guard(
        "the fence is checked",
        *("queue/settle.rs", "fn hold", "lease.fence == fence && ", ""),
        HOLD,
    ),
    Guard(
        "the nonce of the lease is checked",
        *("queue/settle.rs", "fn hold", " && lease.lease_id == lease_id", ""),
        HOLD,
    ),
    Guard(
        "the fence is kept when a lease ends",
        *("queue/settle.rs", "fn end_lease", "task.fence = task.fence.max(lease.fence);", ""),
        HOLD,
    ),
    Guard(
        "a lease is created exclusively",
        *("sys.rs", "pub fn create_exclusive", " | OFlags::EXCL", ""),
        HOLD,
    ),
    Guard(
        "a claimer looks whether its lease was replaced",
        *(
            "queue/claim.rs",
            "fn fill_lease",
            "stat.st_nlink == 0",
            "stat.st_nlink == u64::MAX as _",
        ),
        *(MIDWAY, "slept_through"),
    ),
    Guard(
        "take-over and ack exclude each other",
        *("lock.rs", "pub fn take", "libc::F_WRLCK", "libc::F_UNLCK"),
        *(MIDWAY, "taking_over"),
    ),
    Guard(
        "a new task replaces nothing",
        *("sys.rs", "pub fn rename_new", "fs::RenameFlags::NOREPLACE", "fs::RenameFlags::empty()"),
        *(MIDWAY, "does_not_replace"),
    ),
    Guard(
        "ids are checked",
        *("id.rs", "pub fn is_valid", "!name.is_empty()", "true || !name.is_empty()"),
        HOLD,
    ),
    Guard(
        "no symlink is followed to a directory",
        *("sys.rs", "fn open_beneath", "if !NO_OPENAT2", FOLLOWING),
        HOLD,
    ),
    Guard(
        "no symlink is followed to a file",
        *("sys.rs", "pub fn read_file", " | OFlags::NOFOLLOW", ""),
        HOLD,
    ),
)

NO_SYNC = """
impl FileQueue {
    /// Stands in for a sync that was taken out.
    pub(super) fn no_sync(_path: &str) -> Result<()> {
        Ok(())
    }
}
"""


class Mismatch(Exception):
    """The sources have changed: the guard is not where the script looks for it."""


def without(guard: Guard, source: str) -> str:
    """The source with the guard taken out."""
    if source.count(guard.behind) != 1:
        found = source.count(guard.behind)
        raise Mismatch(f"{guard.file}: {guard.behind!r} occurs {found} times, not once")
    start = source.index(guard.behind)
    body = source[start : start + REACH]
    if guard.line not in body:
        raise Mismatch(f"{guard.file}: {guard.line!r} is not near {guard.behind!r}")
    changed = (
        source[:start] + body.replace(guard.line, guard.instead, 1) + source[start + len(body) :]
    )
    return changed + NO_SYNC if "no_sync" in guard.instead else changed


def copy_sources() -> None:
    """Update the copy; unchanged files keep their times, so that cargo builds little."""
    for name in SOURCES:
        source, target = REPO / name, WORK / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    shutil.rmtree(WORK / "python", ignore_errors=True)
    shutil.copytree(
        REPO / "python", WORK / "python", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )


def build() -> None:
    """Build the extension from the copy, and put it into the copied package."""
    features = ["--features", "pyo3/extension-module"]
    command = ["cargo", "build", "--quiet", "--lib", "-p", "dfq-py", *features]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET), "RUSTFLAGS": "-Awarnings"}
    done = subprocess.run(command, cwd=WORK, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the build failed:\n{done.stderr}")
    library = next(TARGET.glob("debug/lib_core.*"))
    suffix = "so" if sys.platform.startswith("linux") else library.suffix.lstrip(".")
    shutil.copy2(TARGET / "debug" / "lib_core.so", WORK / f"python/dfq/_core.abi3.{suffix}")


def red_tests(guard: Guard) -> list[str]:
    """The names of the tests that fail with what is built now."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    only = ["-k", guard.only] if guard.only else []
    done = subprocess.run(
        [*command, *only, str(REPO / guard.tests)],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(WORK / "python"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{guard.name}: pytest itself failed:\n{done.stdout}{done.stderr}")
    return re.findall(r"^FAILED \S+::(\S+)", done.stdout, re.MULTILINE)


def try_without(guard: Guard) -> list[str]:
    """Build without the guard, and name the tests that go red only then."""
    path = WORK / CORE / guard.file
    whole = path.read_text()
    before = _red_anyway(guard)
    path.write_text(without(guard, whole))
    try:
        build()
        return [name for name in red_tests(guard) if name not in before]
    finally:
        path.write_text(whole)


_anyway: dict[tuple[str, str], list[str]] = {}


def _red_anyway(guard: Guard) -> list[str]:
    """A test that is red with all guards in place notices nothing."""
    return _anyway[guard.tests, guard.only]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only guards whose name contains one of these")
    parser.add_argument("--list", action="store_true", help="name the guards, build nothing")
    options = parser.parse_args()
    chosen = [g for g in GUARDS if not options.names or any(n in g.name for n in options.names)]
    if options.list:
        print(*(guard.name for guard in chosen), sep="\n")
        return 0
    copy_sources()
    for guard in chosen:
        without(guard, (WORK / CORE / guard.file).read_text())
    build()
    for guard in chosen:
        if (guard.tests, guard.only) not in _anyway:
            _anyway[guard.tests, guard.only] = red_tests(guard)
    unnoticed = 0
    for guard in chosen:
        red = try_without(guard)
        unnoticed += not red
        more = f" and {len(red) - 1} more" if len(red) > 1 else ""
        verdict = f"red: {red[0]}{more}" if red else "NOBODY NOTICED"
        print(f"{guard.name:<50} {verdict}", flush=True)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} guards are held by a test")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Mismatch as error:
        sys.exit(f"{error}. Mend tests/guards/run.py to look at the new place.")
