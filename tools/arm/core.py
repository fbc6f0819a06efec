"""The core of the test suite: what runs in the arm64 tree, and what does not, and why.

A pytest plugin (``-p tools.arm.core``). What is left out is left out by this list alone: in
the tree, as in CI, a test that misses something fails, it does not skip.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

#: What runs, if nothing below says otherwise: a part of whatever is Rust, system calls, processes
#: or S3. Collecting takes long in the emulator too, so the rest is not even named to pytest:
#: Python that is the same on every processor, and many ways to say the same thing wrong
#: (test_bad_input, test_foreign_files). Nor are test_forks and test_forking: where other threads
#: are at work, QEMU forks with a lock of its own held. Native runs have it, those on arm64 as well.
CORE = (
    # First, as its tests take longest.
    "tests/acceptance/test_raspberry_pi.py",
    "tests/integration/test_worker.py",
    "tests/conformance/stores/test_store.py",
    "tests/conformance/test_claim.py",
    "tests/conformance/test_lease.py",
    "tests/conformance/test_push.py",
    "tests/conformance/test_settle.py",
    "tests/conformance/test_threads.py",
    "tests/conformance/test_time.py",
    "tests/conformance/test_upkeep.py",
    "tests/conformance/test_waiting.py",
    "tests/integration/file/test_after_errors.py",
    "tests/integration/file/test_bad_disk.py",
    "tests/integration/file/test_broken_files.py",
    "tests/integration/file/test_clocks.py",
    "tests/integration/file/test_known_entries.py",
    "tests/integration/file/test_layouts.py",
    "tests/integration/file/test_processes.py",
    "tests/integration/file/test_rewatching.py",
    "tests/integration/file/test_scarcity.py",
    "tests/integration/file/test_size_limits.py",
    "tests/integration/file/test_waking.py",
    "tests/unit/usv",
    "tests/unit/test_ambient.py",
    "tests/unit/test_core_listing.py",
    "tests/unit/test_file_folder.py",
    "tests/unit/worker/test_heartbeat.py",
    "tests/unit/worker/test_processes.py",
    "tests/unit/worker/test_signals.py",
    "benches/arm/test_memory.py::test_an_idle_worker_is_small",
)

#: Engines and stores (tests/chosen.py). moto stands for S3: the other servers are programs of
#: their own, which run natively; queues in memory are Python.
ON = "file,moto"

_PTRACE = "QEMU has no ptrace, so there is no strace; native runs have it"
_MKFS = "makes an ext4 image: the tree has no e2fsprogs, the native run has"
_FORKS = "forks beside threads at work: the child may wait for ever for a lock of QEMU's own"
_SERVERS = "SeaweedFS is a program of its own, which the tree does not have; the native run has"
_SLOW = "hundreds of requests a test, each some 50 ms in the emulator; native arm64 runs them"

#: Regular expressions for node ids, and why these do not run here.
EXCLUDED = {
    # Of S3's the store itself, and whatever a lease is held to.
    r"conformance/test_(?!lease).*\[(.*-)?s3 on moto": _SLOW,
    r"stores/test_store\.py.*(moto-1000\])": _SLOW,
    r"test_raspberry_pi\.py.*test_the_store_that": _SERVERS,
    r"test_(worker|signals)\.py.*handler_(that_forks|forked)": _FORKS,
    r"file/test_known_entries\.py.*no inotify": _PTRACE,
    r"file/test_scarcity\.py.*refused_thread": _PTRACE,
    r"file/test_processes\.py.*(without_inotify|lacks_a_call|openat2_is_missing)": _PTRACE,
    r"file/test_processes\.py.*takes_over_from_the_dead\[(?!inotify)": _PTRACE,
    r"file/test_bad_disk\.py.*(read_only)": _MKFS,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the list says, and nothing else."""
    left_out = [item for item in items if _reason(item.nodeid) is not None]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if _reason(item.nodeid) is None]
    config.stash[_LEFT_OUT] = dict(Counter(_reason(item.nodeid) or "" for item in left_out))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that prints, if this is one of several that collect."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[_TOLD] = session.config.stash.get(_LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear it; all collect the same."""
    counts = getattr(node, "workeroutput", {}).get(_TOLD)
    if counts is not None:
        node.config.stash[_LEFT_OUT] = counts


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what did not run, so that nobody takes this for the whole."""
    counts: dict[str, int] = terminalreporter.config.stash.get(_LEFT_OUT, {})
    for reason, count in counts.items():
        terminalreporter.write_line(f"left out {count}: {reason}")


_LEFT_OUT = pytest.StashKey[dict[str, int]]()
_TOLD = "dfq_left_out"


def _reason(node_id: str) -> str | None:
    return next(_matching(node_id), None)


def _matching(node_id: str) -> Iterator[str]:
    for pattern, reason in EXCLUDED.items():
        if re.search(pattern, node_id):
            yield reason
