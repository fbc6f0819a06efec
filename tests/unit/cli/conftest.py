from __future__ import annotations

import itertools
import os
from dataclasses import dataclass

import orjson
import pytest
from click.testing import CliRunner

import dfq
from dfq.cli.app import dfq as dfq_command

_numbers = itertools.count()


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        (document,) = self.json_lines
        return document

    @property
    def json_lines(self):
        return [orjson.loads(line) for line in self.out.splitlines()]


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch, tmp_path):
    """No dfq.toml and no DFQ_* of whoever runs the tests."""
    for variable in [name for name in os.environ if name.startswith("DFQ_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def url():
    return f"memory://cli-{next(_numbers)}"


@pytest.fixture
def queue(url):
    with dfq.open(url) as opened:
        yield opened


@pytest.fixture
def run():
    """Run a command line in this process."""

    def run(*words, stdin=None):
        result = CliRunner().invoke(dfq_command, [str(word) for word in words], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run
