from __future__ import annotations

import sys

import orjson
import pytest

from dfq.worker.processes import HOPELESS


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A module of handlers beside the caller."""
    (tmp_path / "shop.py").write_text(
        "import dfq\n"
        "def double(payload):\n    return payload * 2\n"
        "@dfq.task\ndef greet(name):\n    return f'hello {name}'\n"
        "def fail(payload):\n    raise ValueError('no')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "shop"
    sys.modules.pop("shop", None)


def test_a_function_handles_the_payload(run, url, queue, shop):
    queue.push(21, id="t")
    assert run("worker", url, "--handler", "shop:double", "--drain").code == 0
    assert queue.get("t").result == 42


def test_a_module_and_a_function_work_together(run, url, queue, shop):
    queue.push(21, id="plain")
    queue.push({"args": ["you"]}, id="named", name="greet")
    ran = run("worker", url, "--handler", "shop", "--handler", "shop:double", "--drain")
    assert ran.code == 0, ran.err
    assert queue.get("plain").result == 42
    assert queue.get("named").result == "hello you"


def test_a_program_handles_the_payload(run, url, queue):
    queue.push({"a": 1}, id="t")
    assert run("worker", url, "--exec", "cat", "--once").code == 0
    assert queue.get("t").result == {"a": 1}


def test_once_tells_by_its_exit_code(run, url, queue, shop):
    assert run("worker", url, "--handler", "shop:double", "--once").code == 3
    queue.push(1)
    assert run("worker", url, "--handler", "shop:fail", "--once").code == 1


def test_a_queue_that_must_exist_is_not_made_and_the_end_is_one_to_try_again_after(
    run, tmp_path, shop
):
    ran = run("worker", "jobs", "--handler", "shop:double", "--must-exist", "--drain")
    assert ran.code == 74, "systemd does not give up on that"
    assert ran.code not in HOPELESS
    assert "no queue at 'jobs'" in ran.err
    assert not (tmp_path / "jobs").exists()
    assert run("init", "jobs").code == 0
    assert run("worker", "jobs", "--handler", "shop:double", "--must-exist", "--drain").code == 0


def test_filters_choose_the_tasks(run, url, queue, shop):
    queue.push(1, id="a", project="p", labels=["x"])
    queue.push(2, id="b", priority="low")
    options = "--project p --label x --min-priority 10 --max-priority high --drain"
    assert run("worker", url, "--handler", "shop:double", *options.split()).code == 0
    assert queue.get("a").state == "completed"
    assert queue.get("b").state == "ready"


def test_max_tasks_ends_it(run, url, queue, shop):
    for number in range(3):
        queue.push(number)
    assert run("worker", url, "--handler", "shop:double", "--max-tasks", "2").code == 0
    assert queue.stats().completed == 2


def test_the_log_is_json_lines_on_stderr(run, url, queue, shop):
    queue.push(1, id="t", correlation_id="c-7")
    ran = run("worker", url, "--handler", "shop:double", "--drain", "--log-json")
    assert ran.out == ""
    lines = [orjson.loads(line) for line in ran.err.splitlines()]
    assert any(line.get("correlation_id") == "c-7" for line in lines)


def test_settings_come_from_the_configuration(run, url, queue, shop, tmp_path, monkeypatch):
    queue.push(1, id="t")
    (tmp_path / "dfq.toml").write_text(f'queue_url = "{url}"\nhandler = "shop:fail"\n')
    monkeypatch.setenv("DFQ_HANDLER", "shop:double")
    assert run("worker", "--drain").code == 0
    assert queue.get("t").result == 2


def test_what_the_command_line_runs_replaces_what_is_configured(run, url, queue, monkeypatch):
    queue.push(1, id="t")
    monkeypatch.setenv("DFQ_HANDLER", "nowhere:nothing")
    assert run("worker", url, "--exec", "cat", "--drain").code == 0
    assert queue.get("t").state == "completed"


def test_every_option_reaches_the_worker(run, url, shop, monkeypatch):
    import dfq.worker
    from dfq.record import Filter
    from dfq.worker import WorkerOptions

    seen = []
    monkeypatch.setattr(dfq.worker, "run", lambda *args: seen.append(args[2]) or 5)
    words = "--concurrency 3 --processes 2 --timeout 5m --grace 7 --lease 40s --once --max-tasks 9"
    words += " --worker-id w --health h --log-json --name a --project p"
    assert run("worker", url, "--handler", "shop:double", *words.split()).code == 5
    assert seen == [
        WorkerOptions(
            concurrency=3,
            processes=2,
            timeout_seconds=300,
            grace_seconds=7,
            lease_seconds=40,
            once=True,
            max_tasks=9,
            worker_id="w",
            health_path="h",
            log_json=True,
            filter=Filter(project="p", names=("a",)),
        )
    ]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "nothing to run"),
        (["--handler", "a:b", "--exec", "cat"], 2, "not both"),
        (["--handler", "nowhere_at_all:x"], 78, "nowhere_at_all"),
        (["--exec", "no-such-program-anywhere"], 78, "no-such-program-anywhere"),
        (["--exec", "cat", "--concurrency", "0"], 78, "concurrency"),
        (["--exec", "cat", "--concurrency", "many"], 2, "many"),
    ],
)
def test_a_worker_that_can_not_start_says_why(run, url, words, code, says):
    ran = run("worker", url, *words)
    assert ran.code == code
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_health_of_a_worker_that_is_not_there(run, tmp_path):
    ran = run("health", "gone", "--json")
    assert ran.code == 1
    assert ran.json["alive"] is False


def test_health_tells_when_a_worker_last_polled(run, tmp_path):
    from dfq.ambient import SYSTEM_CLOCK
    from dfq.worker.health import HealthFile

    file = HealthFile(str(tmp_path / "h"), SYSTEM_CLOCK, lambda: {"worker_id": "w-1"})
    file.poll()
    ran = run("health", "h")
    assert ran.code == 0
    assert "w-1: last polled 0s ago" in ran.out
    assert run("health", "h", "--json").json["workers"][0]["worker_id"] == "w-1"


def made_lines(ran):
    return [line for line in ran.err.splitlines() if "making a new queue at" in line]


def test_a_worker_tells_once_that_it_makes_a_new_queue(run, tmp_path):
    options = ["--exec", "cat", "--drain", "--log-json"]
    (line,) = made_lines(run("worker", "typo", *options))
    assert orjson.loads(line)["message"].endswith(str(tmp_path / "typo"))
    assert orjson.loads(line)["level"] == "info"
    assert made_lines(run("worker", "typo", *options)) == []


def test_a_queue_that_has_its_policy_already_is_no_news(run, tmp_path):
    run("init", "jobs")
    assert made_lines(run("worker", "jobs", "--exec", "cat", "--drain", "--log-json")) == []


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "def enrich(a,\tb:\n    pass\n",
            ["SyntaxError: '(' was never closed", "line 1", "def enrich(a, b:", "          ^"],
        ),
        ("\nimport no_such_thing\n", ["No module named", "line 2", "import no_such_thing"]),
    ],
    ids=["syntax", "import"],
)
def test_what_a_module_raises_is_told_on_lines_of_its_own(run, url, tmp_path, source, told):
    (tmp_path / "odd_shop.py").write_text(source)
    ran = run("worker", url, "--handler", "odd_shop", "--drain")
    assert ran.code == 78
    lines = ran.err.splitlines()
    assert lines[0].startswith("dfq: error: the handler 'odd_shop' can't be imported:")
    assert len(lines) == len(told)
    for line, words in zip(lines, told, strict=True):
        assert words in line
    if "^" in lines[-1]:
        assert lines[-2][lines[-1].index("^")] == "("
