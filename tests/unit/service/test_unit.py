"""The unit file of a worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from dfq.service.unit import Unit, four_fifths
from dfq.worker.processes import HOPELESS

ODD = 'a b%c $HOME "d" \\e;'


@pytest.fixture
def unit(tmp_path):
    """A unit that systemd can check: what it names is there."""
    for name in ("queue", ODD):
        (tmp_path / name).mkdir()
    return Unit(
        name="dfq-jobs",
        scope="system",
        queue=str(tmp_path / "queue"),
        folder=str(tmp_path / "queue"),
        words=(sys.executable, "-m", "dfq", "worker", "-q", "queue", "--exec=cat"),
        working_directory=str(tmp_path),
        environment_file=str(tmp_path / "jobs.env"),
        user="daemon",
    )


def settings(unit):
    """The settings by their names; one that comes twice, as a list."""
    found = {}
    for text in unit.render().splitlines():
        name, equals, value = text.partition("=")
        if equals and not text.startswith("#"):
            found.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def test_it_is_watched_and_started_again_whatever_ends_it_but_not_for_a_mistake(unit):
    found = settings(unit)
    assert (found["Type"], found["NotifyAccess"], found["WatchdogSec"]) == ("notify", "main", "300")
    assert found["Restart"] == "always", "a handler may end the process, and with 0"
    assert set(map(int, found["RestartPreventExitStatus"].split())) == HOPELESS


def test_a_store_that_is_away_for_long_does_not_end_it_for_good(unit):
    found = settings(replace(unit, queue="s3://bucket/jobs", folder=None))
    assert found["StartLimitIntervalSec"] == "0"
    assert "StartLimitBurst" not in found
    assert int(found["RestartSec"]) >= 30, "so it has to be in no hurry"


def test_the_programs_it_runs_do_not_hear_of_its_end_before_grace_is_over(unit):
    found = settings(replace(unit, grace_seconds=100))
    assert found["KillMode"] == "mixed"
    assert int(found["TimeoutStopSec"]) > 100


def test_its_memory_is_limited_and_it_is_slowed_down_before(unit):
    found = settings(replace(unit, memory="256M"))
    assert (found["MemoryHigh"], found["MemoryMax"]) == ("209715K", "256M")


@pytest.mark.parametrize(
    ("most", "high"),
    [
        ("50%", "40%"),
        ("1G", "819M"),
        ("1000", "800"),
        ("infinity", "infinity"),
        ("10K", "8192"),
        ("1%", "1%"),
    ],
)
def test_the_memory_from_which_it_is_slowed_down_is_four_fifths(most, high):
    assert four_fifths(most) == high


def test_a_system_unit_can_write_to_its_queue_and_what_was_named_and_nowhere_else(unit):
    found = settings(replace(unit, writable=("/srv/out", "/srv/out")))
    assert found["ProtectSystem"] == "strict"
    assert found["ReadWritePaths"] == [f"-{unit.folder}", "-/srv/out"]
    assert found["NoNewPrivileges"] == "yes"
    assert found["User"] == "daemon"


def test_results_that_go_into_a_folder_have_it_mounted_and_writable(unit, tmp_path):
    found = settings(replace(unit, results=str(tmp_path)))
    assert found["ReadWritePaths"] == [f"-{unit.folder}", f"-{tmp_path}"]
    assert found["RequiresMountsFor"] == [unit.folder, str(tmp_path)]


def test_a_folder_below_run_is_made_at_every_start_and_outlasts_it(unit):
    found = settings(replace(unit, runtime="dfq/jobs"))
    assert found["RuntimeDirectory"] == "dfq/jobs"
    assert found["RuntimeDirectoryPreserve"] == "yes"
    assert found["ReadWritePaths"] == f"-{unit.folder}"


def test_no_setting_cuts_it_off_from_all_devices(unit):
    assert "ProtectClock" not in settings(unit)


def test_a_queue_below_tmp_is_not_hidden_by_a_private_one(unit):
    assert "PrivateTmp" not in settings(replace(unit, folder="/tmp/jobs"))
    elsewhere = replace(
        unit, folder="/srv/jobs", words=("/usr/bin/python3",), working_directory="/"
    )
    assert settings(elsewhere)["PrivateTmp"] == "yes"


def test_a_user_unit_asks_for_nothing_that_needs_namespaces(unit):
    found = settings(replace(unit, scope="user", user=None))
    assert found["NoNewPrivileges"] == "yes"
    assert found["WantedBy"] == "default.target"
    assert not {"ProtectSystem", "PrivateTmp", "ReadWritePaths", "User"} & set(found)


def test_a_queue_in_a_bucket_waits_for_the_network_and_the_time(unit):
    found = settings(replace(unit, queue="s3://bucket/jobs?region=eu-central-2", folder=None))
    assert found["After"] == "network-online.target time-sync.target"
    assert not {"RequiresMountsFor", "ReadWritePaths"} & set(found)


def odd(unit, tmp_path):
    """Whatever a name may hold, everywhere."""
    place = str(tmp_path / ODD)
    return replace(
        unit,
        queue=place,
        folder=place,
        words=(*unit.words, f"--exec={ODD}", "--exec=two\nlines"),
        working_directory=place,
        writable=(place, f"{place}/missing"),
        results=place,
        runtime="a b%c/d",
    )


@pytest.mark.parametrize("scope", ["system", "user"])
@pytest.mark.parametrize("change", [lambda unit, _: unit, odd], ids=["plain", "odd"])
def test_systemd_finds_nothing_wrong_with_it(unit, tmp_path, scope, change):
    if shutil.which("systemd-analyze") is None:
        missing = "systemd-analyze is not installed; the other tests look at the lines"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    shown = replace(
        change(unit, tmp_path), scope=scope, user=unit.user if scope == "system" else None
    )
    file = tmp_path / shown.file_name
    file.write_text(shown.render())
    ran = subprocess.run(
        ["systemd-analyze", f"--{scope}", "verify", file],
        capture_output=True,
        text=True,
        check=False,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "XDG_RUNTIME_DIR": str(tmp_path),
            "HOME": "/",
        },
    )
    about = [line for line in ran.stderr.splitlines() if shown.name in line]
    assert (ran.returncode, about) == (0, [])
