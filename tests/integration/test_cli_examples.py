"""Every example in the help and in docs/cli.md is run, in a copy of one prepared folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dfq
from dfq.ambient import SYSTEM_CLOCK
from dfq.cli.app import dfq as dfq_command
from dfq.service.unit import Unit
from dfq.worker.health import HealthFile
from tests.commands import EVERY_COMMAND

REPOSITORY = Path(__file__).parents[2]
PACKAGE = Path(dfq.__file__).parents[1]

TASKS_PY = """
import dfq

def enrich(payload):
    return {"seen": payload}

@dfq.task
def greet(name):
    return f"hello {name}"

@dfq.task(name="default")
def other():
    return None
"""


def examples_in_help():
    for words, command in EVERY_COMMAND.items():
        yield from (pytest.param(text, id=f"{words}: {text}") for text in command.examples)
    lines = [line.strip() for line in dfq_command.help.splitlines()]
    yield from (pytest.param(text, id=text) for text in lines if text.startswith("dfq "))


def examples_in_docs():
    text = (REPOSITORY / "docs" / "cli.md").read_text()
    for number, block in enumerate(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)):
        yield pytest.param(block, id=f"{number}: {block.splitlines()[0]}")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with everything the examples speak of."""
    folder = tmp_path_factory.mktemp("examples")
    with dfq.open(folder / "jobs") as queue:
        queue.push({"customer": 7}, id="invoice-17", max_attempts=1, project="acme", priority=999)
        queue.nack(queue.claim("worker-1"), "the printer is on fire")
        for number in (18, 19):
            queue.push({"customer": number}, id=f"invoice-{number}", project="acme")
    with dfq.Index.create(
        folder / "shops", ["domain", "city", "population:integer"], key_rule="domain"
    ) as index:
        index.put({"domain": "example.com", "city": "Bern"})
    (folder / "shops.csv").write_text("domain,city\nexample.net,Rome\nexample.org,Lima\n")
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").write_text("")
    (folder / "shop" / "tasks.py").write_text(TASKS_PY)
    (folder / "fetch.py").write_text("import sys; sys.stdin.read()\n")
    (folder / "orders.csv").write_text("order,city\no-1,Bern\no-2,Lima\n")
    (folder / "orders.usv").write_text("order␟city␞\nu-1␟Bern␞\nu-2␟Lima␞\n")
    (folder / "orders.jsonl").write_text('{"order": "j-1"}\n{"order": "j-2"}\n')
    (folder / "convert.sh").write_text("#!/bin/sh\ncat > /dev/null\n")
    (folder / "convert.sh").chmod(0o755)
    # systemd's own commands are played; what is installed with them goes below the home.
    shutil.copytree(REPOSITORY / "tests" / "fakes", folder / "bin")
    (folder / "bin" / "dfq").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dfq "$@"\n')
    (folder / "bin" / "dfq").chmod(0o755)
    return folder


def install_service(folder):
    """The service that some examples speak of."""
    unit = Unit(
        name="dfq-jobs",
        scope="user",
        queue=str(folder / "jobs"),
        folder=str(folder / "jobs"),
        words=(sys.executable,),
        working_directory=str(folder),
        environment_file=str(folder / "env"),
    )
    (folder / "units").mkdir()
    (folder / "units" / unit.file_name).write_text(unit.render())


@pytest.fixture
def shell(prepared, tmp_path):
    """Runs a script in a fresh copy of the prepared folder."""
    folder = tmp_path / "copy"
    shutil.copytree(prepared, folder)
    install_service(folder)
    HealthFile(str(folder / "worker.health"), SYSTEM_CLOCK, lambda: {"worker_id": "w"}).poll()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DFQ_")},
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(PACKAGE),
        "HOME": str(folder),
        "SYSTEMD_UNIT_PATH": str(folder / "units"),
        "TMPDIR": str(tmp_path),
    }

    def shell(script):
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return shell


def assert_went_well(ran):
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    assert "Traceback" not in ran.stderr
    assert "dfq: error" not in ran.stderr


@pytest.mark.parametrize("example", list(examples_in_help()))
def test_an_example_in_the_help_works(shell, example):
    assert_went_well(shell(example))


@pytest.mark.parametrize("block", list(examples_in_docs()))
def test_an_example_in_the_documentation_works(shell, block):
    assert_went_well(shell(block))


def test_the_demo_tells_commands_that_work(shell):
    ran = shell("dfq demo --tasks 9")
    assert_went_well(ran)
    commands = re.findall(r"^  ((?:dfq|rm) .*)$", ran.stdout, re.MULTILINE)
    assert [line.split()[1] for line in commands[:6]] == [
        "stats",
        "ls",
        "show",
        "requeue",
        "push",
        "worker",
    ]
    after = shell("\n".join(commands))
    assert_went_well(after)
    assert "there is no such city" in after.stdout
