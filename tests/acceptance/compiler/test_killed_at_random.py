"""Eight writers and eight compilers at once, killed at random: no update is lost, none comes back.

The truth is what the writers said they had put, in the plain model. A writer that was killed may
have put one record more than it could say, so what the model does not know of must be newer than
what it knows.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dfq import Index
from dfq.ambient import SYSTEM_CLOCK
from tests.acceptance.compiler.child import BOUNDS
from tests.indexes import COLUMNS
from tests.models.index_model import IndexModel, time_ns
from tests.patience import patience
from tests.servers import clean_environment

CHILD = Path(__file__).parent / "child.py"
WRITERS = COMPILERS = 8
KILLS = 12
SECONDS = float(os.environ.get("DFQ_TEST_COMPILER_SECONDS", "10"))


class Child:
    """One process; its output is a file, so that nothing it said is lost."""

    def __init__(self, verb: str, url: str, name: str, seconds: float, folder: Path) -> None:
        self.verb = verb
        self.output = folder / f"{name}.out"
        with self.output.open("wb") as output, (folder / f"{name}.err").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), verb, url, name, f"{seconds:.1f}"],
                stdout=output,
                stderr=errors,
                env=clean_environment() | {"TMPDIR": str(folder)},
            )

    def lines(self) -> list[bytes]:
        lines = self.output.read_bytes().splitlines(keepends=True)
        return [line for line in lines if line.endswith(b"\n")]

    def said(self) -> list[bytes]:
        return [line for line in self.lines() if b"\x1f" in line]


def run_and_kill(url: str, folder: Path) -> list[Child]:
    """Keep so many of each running for a while, and kill one now and then."""
    draw = random.Random(7)
    until = SYSTEM_CLOCK.boot() + SECONDS
    pause = threading.Event()
    children: list[Child] = []
    running: list[Child] = []

    def start(verb: str) -> None:
        left = max(0.5, until - SYSTEM_CLOCK.boot())
        running.append(Child(verb, url, f"{verb}-{len(children)}", left, folder))
        children.append(running[-1])

    for _ in range(WRITERS):
        start("write")
        start("compile")
    while not all(child.lines() for child in running):
        assert SYSTEM_CLOCK.boot() < until + 150, "the processes do not get ready"
        pause.wait(0.1)
    until = SYSTEM_CLOCK.boot() + SECONDS
    # Each that is started anew costs the others a second of a processor.
    for _ in range(KILLS):
        pause.wait(draw.uniform(0.5, 1.0) * SECONDS / KILLS)
        victim = running.pop(draw.randrange(len(running)))
        victim.process.kill()
        victim.process.wait()
        start(victim.verb)
    for child in running:
        assert child.process.wait(90) == 0, (folder / f"{child.output.stem}.err").read_text()
    return children


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["local", "seaweedfs"])
def test_no_update_is_lost_and_none_comes_back(
    name, running_server, aws_settings, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("compilers")
    if name == "local":
        url = str(folder / "index")
    else:
        url = running_server(name).url("killed", timeout=100)
    scratch = folder / "scratch"
    scratch.mkdir()
    with Index.create(url, COLUMNS, scratch=str(scratch)) as index:
        children = run_and_kill(url, scratch)
        said = b"".join(line for child in children for line in child.said())
        assert said.count(b"\n") > 100
        compile_to_the_end(index)
        check(index, said)
        assert [f for f in index.verify() if f.level == "error"] == []
        assert not index.stats().quarantined
    assert left_in(scratch) == []
    if name == "local":
        assert left_in(folder / "index" / ".dfq-store") == []


def compile_to_the_end(index: Index) -> None:
    """The locks of the dead end by themselves, and compilers sweep them."""
    until = SYSTEM_CLOCK.boot() + patience(60)
    pause = threading.Event()
    while index.compile(bounds=BOUNDS).waiting or index.plan().locked:
        assert SYSTEM_CLOCK.boot() < until
        pause.wait(0.1)
    assert index.plan().waiting == {}


def left_in(folder: Path) -> list[str]:
    """What the killed left there: neither the children's output nor what a store always has."""
    names = [path.name for path in folder.iterdir() if path.suffix not in (".out", ".err")]
    return [name for name in names if name != "clock" and not name.startswith("lock-")]


def check(index: Index, said: bytes) -> None:
    model = IndexModel()
    assert model.put(said) == 0
    there = {one["domain"].encode(): one for one in index.scan(deleted=True)}
    assert there.keys() >= model.records.keys()
    differing = 0
    for key, fields in model.records.items():
        found = list(there[key].values())
        if [field.decode() for field in fields] == found:
            continue
        differing += 1
        newest = time_ns(fields[2].decode())
        assert newest is not None
        assert time_ns(found[2]) >= newest, (key, fields, found)
    # Each writer that was killed can have put one that it could not say.
    assert differing <= KILLS
