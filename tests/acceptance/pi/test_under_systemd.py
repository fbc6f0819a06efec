"""`dfq service` with a systemd that is not played."""

from __future__ import annotations

import os
import sys
import threading

import pytest

import dfq
from tests.acceptance.pi.booted import LONG, NotBooted, booted
from tests.acceptance.pi.conftest import PACKAGE, missing

pytestmark = [pytest.mark.needs_root]
_POLL_SECONDS = 0.05

HANDLERS = """
import os

def work(payload):
    if payload == "end":
        os._exit(0)
    if payload == "elsewhere":
        with open("beside-the-queue", "w"):
            pass
"""


@pytest.fixture(scope="module")
def systemd(tmp_path_factory):
    if os.geteuid() != 0:
        missing("root")
    try:
        with booted(tmp_path_factory.mktemp("booted")) as made:
            yield made
    except NotBooted as error:
        missing(str(error))


def until(true):
    """What is true at last."""
    pause = threading.Event()
    for _ in range(int(LONG / _POLL_SECONDS)):
        if found := true():
            return found
        pause.wait(_POLL_SECONDS)
    raise AssertionError("it never came to pass")


class Service:
    """One queue, and its service."""

    def __init__(self, systemd, folder):
        self.systemd, self.folder, self.jobs = systemd, folder, folder / "jobs"
        (folder / "handlers.py").write_text(HANDLERS)
        self.name = f"dfq-{folder.name}"
        self.log = folder / "log"
        # Settings of one's own, as from `systemctl edit`.
        own = systemd.units / f"{self.name}.service.d"
        own.mkdir()
        (own / "own.conf").write_text(
            "[Service]\nRestartSec=100ms\nTimeoutAbortSec=1\n"
            f"StandardOutput=append:{self.log}\nStandardError=append:{self.log}\n"
        )
        (folder / "env").write_text(f"PYTHONPATH={PACKAGE}\n")

    def dfq(self, *words):
        clean = {key: value for key, value in os.environ.items() if not key.startswith("DFQ_")}
        program = ["env", "-C", self.folder, f"PYTHONPATH={PACKAGE}", sys.executable, "-m", "dfq"]
        return self.systemd.run(*program, *words, env=clean)

    def install(self, *words):
        with dfq.open(self.jobs):
            pass
        self.dfq("init", "jobs")
        ran = self.dfq(
            *("service", "install", "jobs", "--unit", self.name, "--system", "--run-as", "root"),
            *("--handler", "handlers:work", "--env-file", "env", *words),
        )
        assert ran.returncode == 0, ran.stderr + (self.log.read_text() if self.log.exists() else "")
        return ran

    def show(self, name):
        return self.systemd.shown(f"{self.name}.service", name)

    def pid(self):
        return int(self.show("MainPID"))

    def did(self, payload):
        """What became of a task."""
        with dfq.open(self.jobs) as queue:
            task = queue.push(payload, max_attempts=1)
            return until(
                lambda: (found := queue.get(task.id)).state in ("completed", "failed") and found
            )


@pytest.fixture
def service(systemd, tmp_path):
    made = Service(systemd, tmp_path)
    yield made
    systemd.run("systemctl", "kill", "--signal=SIGKILL", f"{made.name}.service")
    systemd.run("systemctl", "stop", f"{made.name}.service")
    systemd.run("systemctl", "reset-failed", f"{made.name}.service")


def test_a_service_is_ready_when_it_is_installed_works_and_is_gone_when_it_is_removed(service):
    service.install("--now", "--health", "/run/dfq-test/jobs")
    assert service.show("ActiveState") == "active"
    assert service.show("NRestarts") == "0"
    assert service.did(1).state == "completed"
    status = service.dfq("service", "status", "jobs", "--system")
    assert (status.returncode, f"{service.name}: active" in status.stdout) == (0, True)
    assert service.dfq("health", "/run/dfq-test/jobs").returncode == 0
    removed = service.dfq("service", "remove", "jobs", "--system")
    assert removed.returncode == 0, removed.stderr
    assert service.show("LoadState") == "not-found"
    assert service.show("ActiveState") == "inactive"


def test_a_service_whose_handler_ends_it_well_is_started_again(service):
    service.install("--now")
    assert service.did("end").state == "failed", "its second life ends the attempt of its first"
    until(lambda: service.show("NRestarts") == "1" and service.show("ActiveState") == "active")
    assert service.did(1).state == "completed"


def test_a_service_that_gives_no_sign_of_life_is_ended_and_started_again(service):
    service.install("--now", "--watchdog", "2s")
    before = service.pid()
    service.systemd.run("kill", "-STOP", before)
    until(lambda: service.show("NRestarts") == "1" and service.show("ActiveState") == "active")
    assert service.pid() != before
    assert service.did(1).state == "completed"


def test_a_service_whose_queue_is_not_there_makes_none_and_comes_back_when_it_is(service):
    service.install()
    away = service.jobs.rename(service.folder / "away")
    service.systemd.run("systemctl", "start", "--no-block", f"{service.name}.service")
    until(lambda: service.show("ExecMainStatus") == "74")
    assert not service.jobs.exists()
    assert "mount its disk" in service.log.read_text()
    away.rename(service.jobs)
    until(lambda: service.show("ActiveState") == "active")
    assert service.did(1).state == "completed"


def test_a_service_of_the_system_writes_to_its_queue_and_nowhere_else(service):
    service.install("--now")
    task = service.did("elsewhere")
    assert task.state == "failed"
    assert "Read-only file system" in str(task.task.errors)
    assert not (service.folder / "beside-the-queue").exists()


def test_a_mistake_is_not_tried_again(service):
    (service.folder / "handlers.py").write_text("1 / 0\n")
    service.install()
    service.systemd.run("systemctl", "start", f"{service.name}.service")
    until(lambda: service.show("ActiveState") == "failed")
    assert service.show("ExecMainStatus") == "78"
    assert service.show("NRestarts") == "0"
