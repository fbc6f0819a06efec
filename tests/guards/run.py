"""Take each guard out of the core and the compiler once, and see a test go red.

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
from collections.abc import Iterable
from pathlib import Path

from compiler_guards import COMPILER_GUARDS

from guards import GUARDS as CORE_GUARDS
from guards import Guard, Place

GUARDS = (*CORE_GUARDS, *COMPILER_GUARDS)

REPO = Path(__file__).resolve().parents[2]
WORK = Path(tempfile.gettempdir()) / "dfq-guards"
TARGET = Path(tempfile.gettempdir()) / "dfq-guards-target"
SOURCES = ("Cargo.toml", "Cargo.lock", "README.md", "pyproject.toml")
#: Where a guard's file is looked for, by the ending of its name.
HOMES = {".rs": "rust/dfq-core/src", ".py": "python/dfq"}
SECONDS = 300


class Mismatch(Exception):
    """The sources have changed: the guard is not where the script looks for it."""


def block_of(place: Place, source: str) -> tuple[int, int]:
    """From where to where the block reaches that a place is within."""
    if not place.within:
        return 0, len(source)
    found = source.count(place.within)
    if found != 1:
        raise Mismatch(f"{place.file}: {place.within!r} occurs {found} times, not once")
    start = source.rindex("\n", 0, source.index(place.within)) + 1
    indent = len(source[start:]) - len(source[start:].lstrip(" "))
    end = start
    for line in source[start:].splitlines(keepends=True):
        end += len(line)
        code = line.strip()
        depth = len(line) - len(line.lstrip(" "))
        if depth <= indent and code.startswith(("}", "pub const ", "const ")):
            return start, end
        if place.file.endswith(".py") and _ends_block(source[end:], indent):
            return start, end
    if place.file.endswith(".py"):
        return start, end
    raise Mismatch(f"{place.file}: {place.within!r} begins no block")


def _ends_block(rest: str, indent: int) -> bool:
    """Whether a Python block ends before this: something else begins at its own depth."""
    line = next((line for line in rest.splitlines() if line.strip()), "")
    depth = len(line) - len(line.lstrip(" "))
    return bool(line) and depth <= indent and not line.lstrip().startswith(")")


def changed(place: Place, source: str) -> str:
    """The source with the guard taken out of this place."""
    start, end = block_of(place, source)
    block = source[start:end]
    found = block.count(place.text)
    if found != 1:
        where = place.within or "the file"
        raise Mismatch(f"{place.file}: {place.text!r} occurs {found} times in {where!r}, not once")
    return source[:start] + block.replace(place.text, place.instead) + source[end:] + place.extra


def take_out(guard: Guard) -> tuple[Path, str]:
    """The file, and what it is to hold, without the guard."""
    file = Path(guard.place.file)
    path = WORK / HOMES[file.suffix] / file
    try:
        return path, changed(guard.place, path.read_text())
    except (Mismatch, FileNotFoundError) as error:
        raise Mismatch(f"{guard.name!r} is not where it was: {error}") from error


def copy_sources() -> None:
    """Make the copy like the sources. Only what differs is written: cargo goes by times."""
    wanted = {Path(name) for name in SOURCES if (REPO / name).is_file()}
    for folder in ("rust", "python"):
        files = (path.relative_to(REPO) for path in (REPO / folder).rglob("*") if path.is_file())
        wanted |= {path for path in files if path.suffix in (".rs", ".toml", ".py", ".pyi")}
    for path in WORK.rglob("*"):
        if path.is_file() and path.relative_to(WORK) not in wanted:
            path.unlink()
    for path in wanted:
        content = (REPO / path).read_bytes()
        copy = WORK / path
        if not copy.is_file() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


class DoesNotBuild(Exception):
    """What cargo said."""


EXTENSION = "python/dfq/_core.abi3.so"


def build(guards: Iterable[Guard]) -> None:
    """Build the extension from the copy, and put it into the copied package.

    For guards in Python alone, the one that is built already will do.
    """
    if (REPO / EXTENSION).is_file() and all(g.place.file.endswith(".py") for g in guards):
        shutil.copy2(REPO / EXTENSION, WORK / EXTENSION)
        return
    features = ["--features", "pyo3/extension-module"]
    command = ["cargo", "build", "--quiet", "--lib", "-p", "dfq-py", *features]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET), "RUSTFLAGS": "-Awarnings"}
    done = subprocess.run(command, cwd=WORK, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise DoesNotBuild(done.stderr)
    shutil.copy2(TARGET / "debug" / "lib_core.so", WORK / EXTENSION)


def red_tests(guard: Guard) -> list[str]:
    """The names of the tests that fail with what is built now."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    command += ["--timeout=60"]
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
    return re.findall(r"^(?:FAILED|ERROR) \S+?::(.+?)(?: - |$)", done.stdout, re.MULTILINE)


class Baseline:
    """The tests that are red with all guards in place: those notice nothing."""

    def __init__(self, guards: list[Guard]) -> None:
        build(guards)
        self._red: dict[tuple[str, str], list[str]] = {}
        for guard in guards:
            if (guard.tests, guard.only) not in self._red:
                self._red[guard.tests, guard.only] = red_tests(guard)
        self.red = sorted({name for names in self._red.values() for name in names})

    def newly_red(self, guard: Guard) -> list[str]:
        """The tests that are red now, but were not."""
        return [name for name in red_tests(guard) if name not in self._red[guard.tests, guard.only]]


def verdict_without(guard: Guard, baseline: Baseline) -> tuple[bool, str]:
    """Build without the guard, and say who noticed."""
    path, source = take_out(guard)
    whole = path.read_text()
    path.write_text(source)
    try:
        build([guard])
        # Twice before saying so: two processes may by chance have taken the same wrong lock.
        red = baseline.newly_red(guard) or baseline.newly_red(guard)
    except DoesNotBuild as error:
        return False, f"DOES NOT BUILD WITHOUT IT: {error}"
    finally:
        path.write_text(whole)
    if not red:
        return False, "NOBODY NOTICED"
    more = f" and {len(red) - 1} more" if len(red) > 1 else ""
    return True, f"red: {red[0]}{more}"


def missing_guards(chosen: list[Guard]) -> set[str]:
    """Name the guards that are not where they are looked for: each is an error."""
    missing = set()
    for guard in chosen:
        try:
            take_out(guard)
        except Mismatch as error:
            missing.add(guard.name)
            print(f"{error}. Mend tests/guards/guards.py.", flush=True)
    return missing


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
    missing = missing_guards(chosen)
    chosen = [guard for guard in chosen if guard.name not in missing]
    baseline = Baseline(chosen)
    for name in baseline.red:
        print(f"red with all guards in place: {name}", flush=True)
    held = 0
    for guard in chosen:
        noticed, verdict = verdict_without(guard, baseline)
        held += noticed
        print(f"{guard.name:<58} {verdict}", flush=True)
    print(f"{held} of {len(chosen) + len(missing)} guards are held by a test")
    return 1 if missing or baseline.red or held < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
