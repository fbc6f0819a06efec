"""The card fills up or turns read-only while a worker runs: it says so once, and comes back."""

from __future__ import annotations

import errno
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from tests.acceptance.pi.conftest import missing

pytestmark = [pytest.mark.needs_root]

LONG = 60.0
#: The calls by which a queue changes anything. A read-only disk refuses these, but not an open for
#: reading, which strace can't tell from one for writing.
CHANGING = "openat,mkdirat,renameat,renameat2,unlinkat,utimensat"


class Worker:
    """`dfq worker`, whose log is read line by line."""

    def __init__(self, folder, environment, *options):
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.log = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dfq", "worker", folder, "--exec", "cat", *options],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self._lines.put(line)

    def says(self, text):
        """Wait for a line with this text."""
        while True:
            line = self._lines.get(timeout=LONG)
            self.log += line
            if text in line:
                return line

    def ends(self):
        code = self.process.wait(LONG)
        self._reader.join()
        while not self._lines.empty():
            self.log += self._lines.get()
        return code

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.ends()
        self.process.stderr.close()


@pytest.fixture
def work(environment):
    started = []

    def work(folder, *options):
        started.append(Worker(folder, environment, *options))
        return started[-1]

    yield work
    for worker in started:
        worker.end()


@pytest.fixture
def dfq(environment):
    """Run a command; its own process keeps no hand on the disk."""

    def dfq(*words):
        return subprocess.run(
            [sys.executable, "-m", "dfq", *map(str, words)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )

    return dfq


@pytest.fixture
def small(tmp_path):
    """A disk that is soon full."""
    path = tmp_path / "small"
    path.mkdir()
    options = "size=1m,nr_inodes=2000"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "dfq-test", path], capture_output=True, check=False
    )
    if made.returncode != 0:
        missing("the right to mount a tmpfs")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(path):
    """Not one more byte fits."""
    with (path / "filler").open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            for _ in range(10_000):
                try:
                    file.write(b"x" * size)
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    break


def test_a_worker_on_a_full_disk_says_so_once_and_goes_on_when_there_is_space(small, work, dfq):
    folder = small / "queue"
    lines = "".join(f'{{"n": {n}}}\n' for n in range(30))
    (small.parent / "rows.jsonl").write_text(lines)
    assert dfq("push", folder, "--file", small.parent / "rows.jsonl").returncode == 0
    fill(small)
    worker = work(folder)
    said = worker.says("fails, trying on")
    assert "free some space" in said
    refused = dfq("push", folder, "1")
    assert (refused.returncode, "free some space" in refused.stderr) == (74, True)
    (small / "filler").unlink()
    worker.says("is back")
    for _ in range(30):
        worker.says("completed in")
    worker.process.terminate()
    assert worker.ends() == 0
    assert worker.log.count("fails, trying on") == 1
    stats = dfq("stats", folder, "--json").stdout
    assert '"completed":30,' in stats and '"ready":0,' in stats and '"quarantined":0,' in stats


def test_a_worker_on_a_disk_that_turns_read_only_and_back_says_so_once(tmp_path, work, dfq):
    """The kernel lets nobody remount a disk on which a file is open for writing, so here it is the
    worker's own calls that are refused, reads with them; the next test is about a real one."""
    if shutil.which("strace") is None:
        missing("strace")
    folder = tmp_path / "queue"
    worker = work(folder)
    worker.says("works on")
    assert dfq("push", folder, "0", "--id", "before").returncode == 0
    worker.says("before attempt=1")
    fault = ("-e", f"trace={CHANGING}", "-e", f"inject={CHANGING}:error=EROFS")
    tracer = subprocess.Popen(
        ["strace", "-f", "-o", "/dev/null", *fault, "-p", str(worker.process.pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "attached" in tracer.stderr.readline()
    assert dfq("push", folder, "1", "--id", "meanwhile").returncode == 0
    assert "read-only" in worker.says("fails, trying on").lower()
    tracer.terminate()
    tracer.communicate()
    worker.says("is back")
    worker.says("meanwhile attempt=1")
    worker.process.terminate()
    assert worker.ends() == 0
    assert worker.log.count("fails, trying on") == 1


def test_a_card_that_died_is_told_and_on_another_mount_everything_is_there(card, work, dfq):
    """What ext4 does about a card with errors: it is read-only until it is mounted anew."""
    folder = card.root / "queue"
    worker = work(folder)
    worker.says("works on")
    assert dfq("push", folder, "0", "--id", "before").returncode == 0
    worker.says("completed in")
    # So that it finds work and a dead card at once.
    worker.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert dfq("push", folder, "1", "--id", "meanwhile").returncode == 0
    subprocess.run(["sync", "-f", card.root], check=True)
    subprocess.run(["mount", "-o", "remount,abort", card.root], check=True)
    refused = dfq("push", folder, "2", "--id", "refused")
    assert (refused.returncode, "read-only" in refused.stderr.lower()) == (74, True)
    looked = dfq("ls", folder)
    assert (looked.returncode, "before" in looked.stdout) == (0, True)
    worker.process.send_signal(signal.SIGCONT)
    assert "read-only" in worker.says("fails, trying on").lower()

    card.power_up()
    assert dfq("push", folder, "3", "--id", "after").returncode == 0
    # It still stands on the dead one. It finds that out, and ends for systemd to start it again.
    worker.says("another is in its place")
    assert worker.ends() == 1
    assert worker.log.count("fails, trying on") == 1
    new = work(folder, "--drain")
    assert new.ends() == 0
    assert "meanwhile attempt=1" in new.log
    assert "after attempt=1" in new.log
    assert "before attempt" not in new.log, "what was done is not done again"
