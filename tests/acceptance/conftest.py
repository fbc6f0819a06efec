"""Runs what a document shows: its fenced blocks, in order, and the output it says they have.

- A `python` block runs in the one namespace of its section; after a paragraph that ends in
  "`name.py`:" it is that file instead. A `sh` block runs in bash, and stops at the first error.
- A `text` block right after one of these is what it prints; `…` stands for anything.
- `no-run` after the language: only to be read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import dfq
from tests.patience import patience

REPOSITORY = Path(__file__).parents[2]
PACKAGE = Path(dfq.__file__).parents[1]

_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w/]+\.\w+)`:\s*\Z")

_DRIVER = """
import contextlib, io, json, subprocess, sys
namespace = {"__name__": "__main__"}
for step in json.load(sys.stdin):
    if step["file"]:
        with open(step["file"], "w") as file:
            file.write(step["code"])
        continue
    print("##", json.dumps(step["code"]), file=sys.stderr)
    if step["language"] == "python":
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(step["code"], step["where"], "exec"), namespace)
        printed = out.getvalue()
    else:
        command = ["bash", "-e", "-o", "pipefail", "-c", step["code"]]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                                 stdin=subprocess.DEVNULL).stdout
    print(json.dumps(printed), flush=True)
"""


@dataclass
class Step:
    """One block: to run, or to write as a file."""

    language: str
    code: str
    where: str
    file: str | None = None
    expected: str | None = None


@dataclass
class Section:
    """The blocks below one heading. They share a folder and a namespace."""

    heading: str
    steps: list[Step] = field(default_factory=list)


def sections_of(path):
    """The sections of a document that have something to run."""
    text = path.read_text()
    starts = [0, *(found.start() for found in re.finditer(r"^## ", text, re.MULTILINE))]
    found = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        section = Section(text[start:end].splitlines()[0].lstrip("# "))
        previous_end = start
        for block in _BLOCK.finditer(text, start, end):
            language, options, code = block.groups()
            between = text[previous_end : block.start()]
            previous_end = block.end()
            if "no-run" in options:
                continue
            if language == "text" and section.steps and not between.strip():
                section.steps[-1].expected = code
            elif language in ("python", "sh"):
                named = _FILE.search(between)
                where = f"{path.name}:{text.count(chr(10), 0, block.start()) + 2}"
                section.steps.append(Step(language, code, where, named[1] if named else None))
        if section.steps:
            found.append(section)
    return found


def all_blocks(document):
    """The code of every block of a document, those that are only to be read, too."""
    return [code for _, _, code in _BLOCK.findall((REPOSITORY / document).read_text())]


def pytest_generate_tests(metafunc):
    """A test that takes a `section` runs for each one of the DOCUMENTS of its module."""
    if "section" in metafunc.fixturenames:
        cases = [
            pytest.param(section, id=f"{document}: {section.heading}")
            for document in metafunc.module.DOCUMENTS
            for section in sections_of(REPOSITORY / document)
        ]
        metafunc.parametrize("section", cases)


def _matches(printed, expected):
    pattern = ".*?".join(re.escape(part) for part in expected.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.fixture
def run_section(tmp_path):
    """Runs a section in an empty folder, with `dfq`, `python` and a played systemd on the path.

    ``replaced`` names what is called otherwise here than in the document: another machine, say.
    """
    (tmp_path / "bin").mkdir()
    for name, line in (("python", ""), ("dfq", "-m dfq ")):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {line}"$@"\n')
        program.chmod(0o755)
    for fake in (REPOSITORY / "tests" / "fakes").iterdir():
        shutil.copy(fake, tmp_path / "bin")
    folder = tmp_path / "here"
    folder.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DFQ_")},
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        # A worker finds its handlers in the current folder, as with `python -m`.
        "PYTHONPATH": str(PACKAGE),
        "HOME": str(folder),
        "SYSTEMD_UNIT_PATH": str(folder / "units"),
        "FAKE_SYSTEMD": str(tmp_path / "fake-systemd"),
        "TMPDIR": str(tmp_path),
        "COLUMNS": "100",
    }

    def run_section(section, replaced=None):
        for step in section.steps:
            for old, new in (replaced or {}).items():
                step.code = step.code.replace(old, new)
        steps = [step for step in section.steps if step.file is None]
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", _DRIVER],
            input=json.dumps([vars(step) for step in section.steps]),
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(100.0),
        )
        assert ran.returncode == 0, f"{section.heading}\n{ran.stdout}\n{ran.stderr}"
        for step, printed in zip(steps, map(json.loads, ran.stdout.splitlines()), strict=True):
            if step.expected is not None:
                assert _matches(printed, step.expected), f"{step.where} printed:\n{printed}"

    return run_section
