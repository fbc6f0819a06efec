"""`dfq service`, with a systemd that is played."""

from __future__ import annotations

import getpass
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import dfq
from dfq.worker.hearing import START_SECONDS

FAKES = Path(__file__).parents[2] / "fakes"


@pytest.fixture(autouse=True)
def systemd(tmp_path, monkeypatch):
    """Notes what it is asked; answers and refusals can be put below it."""
    home = tmp_path / "fake"
    for name in ("answers", "refuses"):
        (home / name).mkdir(parents=True)
    monkeypatch.setenv("FAKE_SYSTEMD", str(home))
    monkeypatch.setenv("PATH", f"{FAKES}:{os.environ['PATH']}")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("SUDO_USER", raising=False)
    return home


@pytest.fixture
def calls(systemd):
    """What systemctl and journalctl were asked since the last look, without the usual flags."""

    def calls():
        file = systemd / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line.replace(" --no-pager", "") for line in lines]

    return calls


@pytest.fixture
def jobs(tmp_path):
    with dfq.open(tmp_path / "jobs") as queue:
        queue.push(1)
    return tmp_path / "jobs"


@pytest.fixture
def units(tmp_path):
    """Where a user's units are."""
    return tmp_path / ".config" / "systemd" / "user"


@pytest.fixture
def install(run, jobs):
    def install(*words):
        return run("service", "install", "jobs", "--user", "--exec", "cat", *words)

    return install


def setting(text, name):
    (value,) = [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}=")]
    return value


def words_of(text):
    """The command of a unit, as systemd would split it: its quotes are those of a shell here."""
    line = setting(text, "ExecStart")
    return [word.replace("%%", "%") for word in shlex.split(line)]


def test_install_writes_the_unit_and_enables_it(install, units, calls):
    ran = install()
    assert ran.code == 0, ran.err
    assert "installed dfq-jobs, a service of the user" in ran.out
    assert "systemctl --user start dfq-jobs" in ran.err
    assert calls() == [
        "systemctl --user show-environment",
        "systemctl --user daemon-reload",
        "systemctl --user enable dfq-jobs.service",
    ]
    assert [file.name for file in units.iterdir()] == ["dfq-jobs.service"]
    assert (units / "dfq-jobs.service").stat().st_mode & 0o777 == 0o644


def test_install_now_starts_it_again_so_that_new_options_hold(install, calls):
    assert install("--now").code == 0
    assert calls()[-1] == "systemctl --user restart dfq-jobs.service"


def test_installed_again_but_not_started_it_says_that_the_old_options_hold(install):
    assert "systemctl --user start dfq-jobs" in install().err
    ran = install("--concurrency", "2")
    assert ran.out.startswith("replaced")
    assert "systemctl --user restart dfq-jobs" in ran.err
    assert "systemctl --user start" not in ran.err


def test_install_now_starts_one_that_was_started_too_often_by_somebody_s_own_limit(
    install, systemd, calls
):
    (systemd / "refuses" / "reset-failed").write_text("Unit dfq-jobs.service not loaded.\n")
    assert install("--now").code == 0
    assert calls()[-2:] == [
        "systemctl --user reset-failed dfq-jobs.service",
        "systemctl --user restart dfq-jobs.service",
    ]


def test_systemctl_is_waited_for_as_long_as_the_units_may_take(run, install, jobs, monkeypatch):
    waited = {}
    run_it = subprocess.run

    def timed(command, *, timeout=None, **rest):
        waited[next(word for word in command[1:] if word[0] != "-")] = timeout
        return run_it(command, timeout=timeout, **rest)

    monkeypatch.setattr("dfq.service.systemd.subprocess.run", timed)
    install("--grace", "2h", "--now")
    starting = waited["restart"]
    assert starting > START_SECONDS
    # One that runs already ends by its old unit first: asked to, and then killed.
    install("--grace", "1s", "--now")
    assert waited["restart"] >= starting + 7200
    install("--grace", "1h")
    run("service", "remove", "jobs", "--user")
    assert waited["disable"] > 3600


def test_print_shows_the_unit_and_asks_and_changes_nothing(install, units, calls):
    ran = install("--print")
    assert ran.code == 0
    assert "[Service]" in ran.out
    assert calls() == []
    assert not units.exists()


def test_json_says_what_was_done(install, units, tmp_path):
    said = install("--json").json
    assert said["unit"] == "dfq-jobs"
    assert said["file"] == str(units / "dfq-jobs.service")
    assert said["queue"] == str(tmp_path / "jobs")
    assert (said["replaced"], said["started"], said["scope"]) == (False, False, "user")
    again = install("--json", "--now").json
    assert (again["replaced"], again["started"]) == (True, True)


def test_what_it_runs_is_this_interpreter_with_the_options_given(run, jobs, tmp_path, monkeypatch):
    (tmp_path / "100% $HOME").mkdir()
    ran = run(
        *("service", "install", "jobs", "--user", "--print", "--exec", "sh -c 'echo $HOME 5%'"),
        *("--concurrency", "3", "--timeout", "5m", "--grace", "1.5", "--health", "h/file"),
        *("--label", "a b", "--label", "c", "--name", "-x", "--log-json", "--worker-id", "w"),
    )
    program, *words = words_of(ran.out)
    assert program == f":{sys.executable}"
    assert words[:6] == ["-X", "faulthandler", "-m", "dfq", "worker", "-q"]
    assert words[6] == str(tmp_path / "jobs")
    assert words[7:] == [
        "--must-exist",
        "--exec=sh -c 'echo $HOME 5%'",
        "--concurrency=3",
        "--timeout=300",
        "--grace=1.5",
        f"--health={tmp_path / 'h/file'}",
        "--log-json",
        "--worker-id=w",
        "--label=a b",
        "--label=c",
        "--name=-x",
    ]
    assert setting(ran.out, "WorkingDirectory") == str(tmp_path)
    assert int(setting(ran.out, "TimeoutStopSec")) >= 31


def test_a_worker_understands_the_options_it_is_given(run, jobs, tmp_path):
    printed = run(
        "service", "install", "jobs", "--user", "--print", "--exec", "cat", "--name", "-x"
    )
    words = words_of(printed.out)[5:]
    assert run(*words, "--drain").code == 0


def test_what_the_environment_sets_here_is_set_there(run, jobs, tmp_path, monkeypatch):
    monkeypatch.setenv("DFQ_EXEC", "cat")
    monkeypatch.setenv("DFQ_PROCESSES", "2")
    monkeypatch.setenv("DFQ_QUEUE_URL", "jobs")
    (tmp_path / "my.toml").write_text("concurrency = 2\n")
    monkeypatch.setenv("DFQ_CONFIG", "my.toml")
    text = run("service", "install", "--user", "--print").out
    assert words_of(text)[6:] == [
        *("-q", str(tmp_path / "jobs"), "--must-exist"),
        *("--exec=cat", "--processes=2"),
    ]
    assert f"Environment=DFQ_CONFIG={tmp_path / 'my.toml'}" in text
    other = run("service", "install", "--user", "--print", "--handler", "shop.tasks").out
    assert "--handler=shop.tasks" in words_of(other)
    assert "--exec=cat" not in words_of(other)


def test_programs_are_found_as_here_and_first_beside_the_interpreter(install, monkeypatch):
    monkeypatch.setenv("PATH", f"relative::/opt/tools:{Path(sys.executable).parent}:/usr/bin")
    path = f"Environment=PATH={Path(sys.executable).parent}:/opt/tools:/usr/bin"
    assert path in install("--print").out.splitlines()


def test_results_go_into_an_index_whose_folder_it_may_write_to(run, jobs, tmp_path):
    words = ["service", "install", "jobs", "--system", "--exec", "cat", "--print"]
    text = run(*words, "--results-to", "names").out
    assert f"--results-to={tmp_path / 'names'}" in words_of(text)
    assert f"ReadWritePaths=-{tmp_path / 'names'}" in text.splitlines()
    away = run(*words, "--results-to", "s3://bucket/names").out
    assert "--results-to=s3://bucket/names" in words_of(away)
    assert away.count("ReadWritePaths=") == 1


def test_a_health_file_below_run_has_a_folder_that_systemd_makes_at_every_start(run, jobs):
    words = ["service", "install", "jobs", "--system", "--exec", "cat", "--print", "--health"]
    text = run(*words, "/run/dfq-test/some/jobs").out
    assert setting(text, "RuntimeDirectory") == "dfq-test/some"
    assert "ReadWritePaths=-/run" not in text
    ran = run(*words, "/run/jobs")
    assert (ran.code, "/run/dfq/" in ran.err) == (78, True)
    # Somebody else's would be taken from them.
    text = run(*words, "/run/lock/jobs").out if Path("/run/lock").is_dir() else text
    assert "RuntimeDirectory=lock" not in text
    assert "RuntimeDirectory" not in run(*words, "health").out


def test_a_user_has_a_run_of_their_own(run, jobs, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    words = ["service", "install", "jobs", "--user", "--exec", "cat", "--print", "--health"]
    assert setting(run(*words, "run/dfq/jobs").out, "RuntimeDirectory") == "dfq"
    assert run(*words, "run/jobs").code == 78
    (tmp_path / "run" / "dfq").mkdir(parents=True)
    assert setting(run(*words, "run/dfq/jobs").out, "RuntimeDirectory") == "dfq"
    (tmp_path / "run" / "dfq").chmod(0o777)
    assert "RuntimeDirectory" not in run(*words, "run/dfq/jobs").out


def test_status_names_the_queue_as_it_is_called(run, tmp_path):
    odd = "a b%c"
    with dfq.open(tmp_path / odd) as queue:
        queue.push(1)
    assert run("service", "install", odd, "--user", "--exec", "cat").code == 0
    assert run("service", "status", "--user", "--json").json["queue"] == str(tmp_path / odd)
    assert f"for {tmp_path / odd}\n" in run("service", "status", odd, "--user").out


def test_credentials_have_a_file_of_their_own_and_are_never_in_the_unit(
    install, tmp_path, monkeypatch
):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    text = install("--print").out
    assert setting(text, "EnvironmentFile") == f"-{tmp_path}/.config/dfq/dfq-jobs.env"
    assert "hush" not in text
    (tmp_path / "keys").write_text("AWS_SECRET_ACCESS_KEY=hush\n")
    (tmp_path / "keys").chmod(0o644)
    ran = install("--env-file", "keys")
    assert f"chmod 600 {tmp_path / 'keys'}" in ran.err
    (tmp_path / "keys").chmod(0o600)
    assert "chmod" not in install("--env-file", "keys").err


def test_a_service_of_a_system_runs_as_who_owns_the_queue(run, jobs):
    words = ["service", "install", "jobs", "--system", "--exec", "cat", "--print"]
    assert setting(run(*words).out, "User") == getpass.getuser()
    assert setting(run(*words, "--run-as", "daemon").out, "User") == "daemon"
    ran = run(*words, "--run-as", "nobody-at-all")
    assert ran.code == 78
    assert "useradd" in ran.err


@pytest.mark.skipif(os.geteuid() != 0, reason="the queue has to belong to root")
def test_a_service_does_not_run_as_root_unless_told_so(run, jobs, monkeypatch, tmp_path):
    monkeypatch.setenv("SYSTEMD_UNIT_PATH", str(tmp_path / "system"))
    words = ["service", "install", "jobs", "--exec", "cat"]
    ran = run(*words)
    assert (ran.code, "--run-as USER" in ran.err) == (78, True)
    assert run(*words, "--run-as", "root").code == 0
    assert (tmp_path / "system" / "dfq-jobs.service").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("nowhere --exec cat", 66, "there is no queue at"),
        ("jobs", 2, "nothing to run"),
        ("jobs --exec cat --handler shop", 2, "not both"),
        ("jobs --exec cat --system", 2, "--user or --system"),
        ("jobs --exec cat --run-as root", 2, "--run-as is for --system"),
        ("jobs --exec cat --memory lots", 2, "no size"),
        ("jobs --exec cat --concurrency 0", 78, "concurrency is 0"),
        ("jobs --exec cat --watchdog 0", 2, "--watchdog"),
        ("jobs --exec cat --unit ../evil", 73, "no name for a service"),
        ("memory://q --exec cat", 78, "in memory"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(run, jobs, calls, units, words, code, said):
    ran = run("service", "install", "--user", *words.split())
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert not units.exists()
    assert calls() == []


def test_without_systemd_it_says_what_to_do_instead(install, systemd, units, monkeypatch, tmp_path):
    (systemd / "refuses" / "show-environment").write_text("System has not been booted\n")
    ran = install()
    assert ran.code == 69
    assert "System has not been booted" in ran.err
    assert "cron with @reboot" in ran.err
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = install()
    assert (ran.code, "systemctl is not installed" in ran.err) == (69, True)
    assert not units.exists()


def test_a_refusal_of_systemd_is_passed_on(install, systemd):
    (systemd / "refuses" / "restart").write_text("Job for dfq-jobs.service failed.\n")
    ran = install("--now")
    assert (ran.code, "Job for dfq-jobs.service failed" in ran.err) == (74, True)


def test_a_unit_that_dfq_did_not_make_is_left_alone(run, install, units):
    units.mkdir(parents=True)
    (units / "dfq-jobs.service").write_text("[Service]\nExecStart=/bin/true\n")
    for ran in (install(), install("--now")):
        assert (ran.code, "not of dfq's making" in ran.err) == (73, True)
    assert run("service", "remove", "--user", "--unit", "jobs").code == 66
    assert (units / "dfq-jobs.service").read_text() == "[Service]\nExecStart=/bin/true\n"


def test_two_queues_of_one_name_need_another_for_the_second(run, install, tmp_path):
    install()
    with dfq.open(tmp_path / "other" / "jobs") as queue:
        queue.push(1)
    words = ["service", "install", "other/jobs", "--user", "--exec", "cat"]
    ran = run(*words)
    assert (ran.code, "--unit" in ran.err) == (73, True)
    assert run(*words, "--unit", "jobs2").code == 0
    states = run("service", "status", "--user", "--json").json_lines
    assert [state["unit"] for state in states] == ["dfq-jobs", "dfq-jobs2"]


SHOWN = """LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
MainPID=4711
NRestarts=2
Result=success
StatusText=12 completed, 0 tried again, 1 failed, 1 running
ExecMainStatus=0
MemoryCurrent=26214400
ActiveEnterTimestamp=Wed 2026-11-18 20:00:00 UTC
"""


def test_status_says_how_it_is_in_words(run, install, systemd):
    install()
    (systemd / "answers" / "show").write_text(SHOWN)
    ran = run("service", "status", "jobs", "--user")
    assert ran.code == 0
    assert ran.out.splitlines()[0].startswith("dfq-jobs: active (running), enabled, for /")
    assert "pid 4711, 25 MB" in ran.out
    assert "started again 2 times" in ran.out
    assert "12 completed, 0 tried again, 1 failed, 1 running" in ran.out


def test_status_says_it_in_json_and_by_its_exit_code(run, install, systemd, tmp_path):
    install()
    failed = SHOWN.replace("=active", "=failed").replace("=success", "=watchdog")
    failed = failed.replace("=4711", "=0").replace("=26214400", f"={2**64 - 1}")
    (systemd / "answers" / "show").write_text(failed)
    ran = run("service", "status", "--user", "--json")
    assert ran.code == 1
    state = ran.json
    assert (state["unit"], state["active"], state["result"]) == ("dfq-jobs", "failed", "watchdog")
    assert (state["pid"], state["memory_bytes"], state["restarts"]) == (None, None, 2)
    assert "ended badly: watchdog" in run("service", "status", "--user").out


def test_status_of_nothing_is_no_failure_but_said(run):
    ran = run("service", "status", "--user")
    assert (ran.code, ran.out, "no service is installed" in ran.err) == (0, "", True)
    assert run("service", "status", "gone", "--user").code == 66


def test_logs_are_those_of_the_unit(run, install, calls, capfd):
    install()
    calls()
    ran = run("service", "logs", "jobs", "--user", "-n", "5", "--since", "2 hours ago", "--json")
    assert ran.code == 0
    assert calls() == [
        "journalctl --user-unit=dfq-jobs.service --lines=5 --since=2 hours ago --output=json"
    ]
    assert capfd.readouterr().out == "a line of the journal\n"


def test_remove_stops_it_and_takes_the_unit_but_not_the_queue(run, install, calls, units, jobs):
    install()
    calls()
    ran = run("service", "remove", "jobs", "--user")
    assert ran.code == 0
    assert calls() == [
        "systemctl --user show-environment",
        "systemctl --user disable --now dfq-jobs.service",
        "systemctl --user daemon-reload",
    ]
    assert list(units.iterdir()) == []
    with dfq.open(jobs) as queue:
        assert queue.stats().ready == 1
    assert run("service", "remove", "jobs", "--user").code == 66


def test_a_service_that_does_not_stop_keeps_its_unit(run, install, systemd, units):
    install()
    (systemd / "refuses" / "disable").write_text("Access denied\n")
    ran = run("service", "remove", "jobs", "--user")
    assert (ran.code, "Access denied" in ran.err) == (74, True)
    assert (units / "dfq-jobs.service").exists()
