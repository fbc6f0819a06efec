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

#: What runs, if nothing below says otherwise: what there is of Rust, of system calls, of processes
#: and of S3. All the rest is Python that is the same on every processor; native runs have it.
CORE = (
    "tests/conformance",
    "tests/integration/file",
    "tests/integration/test_worker.py",
    "tests/unit/usv",
    "tests/unit/compiler",
    "tests/unit/test_core_listing.py",
    "tests/unit/test_file_folder.py",
    "tests/unit/test_ambient.py",
    "tests/unit/test_task.py",
    "tests/unit/worker/test_execution.py",
    "tests/unit/worker/test_forking.py",
    "tests/unit/worker/test_heartbeat.py",
    "tests/unit/worker/test_loop.py",
    "tests/unit/worker/test_notify.py",
    "tests/unit/worker/test_processes.py",
    "tests/unit/worker/test_results.py",
    "tests/unit/worker/test_signals.py",
    "tests/unit/worker/test_time_limit.py",
    "benches/arm/test_memory.py::test_an_idle_worker_is_small",
)

_PTRACE = "QEMU has no ptrace, so there is no strace; native runs have it"
_MKFS = "makes an ext4 image: the tree has no e2fsprogs, the native run has"
_STARTS = "starts Python dozens of times, at 5 s each in the emulator; native arm64 runs them"
_SERVER = "a server of its own, run natively; moto stands for S3 here"
_PURE = "pure Python, the same on every processor"
_SLOW = "hundreds of requests a test, each some 50 ms in the emulator; native arm64 runs them"

#: Regular expressions for node ids, and why these do not run here.
EXCLUDED = {
    r"conformance/.*\[(.*-)?(s3 on )?(ministack|seaweedfs)": _SERVER,
    r"conformance/test_.*\[(.*-)?(memory|s3 on memory)": _PURE,
    r"conformance/test_.*\[(.*-)?s3 on local": _PURE,
    r"conformance/stores/.*\[(memory|local)": _PURE,
    r"test_settle.*(retry_policy_decides|newest_twenty).*moto": _SLOW,
    # Of S3's the store itself, and whatever a lease is held to.
    r"conformance/test_(?!lease|settle).*\[(.*-)?s3 on moto": _SLOW,
    r"file/test_(index_counts|emulated)\.py": _PTRACE,
    r"file/test_known_entries\.py.*no inotify": _PTRACE,
    r"file/test_scarcity\.py.*refused_thread": _PTRACE,
    r"file/test_processes\.py.*(without_inotify|lacks_a_call|openat2_is_missing)": _PTRACE,
    r"file/test_processes\.py.*takes_over_from_the_dead\[(?!inotify)": _PTRACE,
    r"file/test_bad_disk\.py.*(read_only)": _MKFS,
    r"file/test_bad_input\.py.*(command|stdin|rows_with_bad_ids)": _STARTS,
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
