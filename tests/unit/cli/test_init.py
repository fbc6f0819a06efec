from __future__ import annotations

import stat

import orjson
import pytest

from dfq.policy import Policy, RetryPolicy


def written(folder):
    return orjson.loads((folder / "queue.json").read_bytes())


def test_init_writes_every_setting_of_the_policy(run, tmp_path):
    ran = run("init", "jobs", "--max-attempts", "3", "--retry-base", "10s", "--finished", "drop")
    assert ran.code == 0, ran.err
    content = written(tmp_path / "jobs")
    assert (content.pop("dfq"), content.pop("layout")) == (1, "sharded")
    retry = RetryPolicy(base_seconds=10)
    assert Policy.from_json(content) == Policy(max_attempts=3, retry=retry, finished="drop")


def test_the_folder_and_the_file_are_for_their_owner_only(run, tmp_path):
    run("init", "jobs")
    assert stat.S_IMODE((tmp_path / "jobs").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "jobs" / "queue.json").stat().st_mode) == 0o600
    assert {path.name for path in (tmp_path / "jobs").iterdir()} == {"queue.json", "tmp"}
    assert list((tmp_path / "jobs" / "tmp").iterdir()) == []


def test_of_two_who_make_a_queue_at_once_one_is_told(run, tmp_path, monkeypatch):
    import dfq.cli.policy_places

    run("init", "jobs", "--max-attempts", "3")
    monkeypatch.setattr(dfq.cli.policy_places.InFolder, "read", lambda _self: None)
    ran = run("init", "jobs", "--max-attempts", "4")
    assert ran.code == 73
    assert written(tmp_path / "jobs")["max_attempts"] == 3


def test_a_policy_that_is_there_is_not_overwritten(run, tmp_path):
    run("init", "jobs", "--max-attempts", "3")
    ran = run("init", "jobs", "--max-attempts", "4")
    assert ran.code == 73
    assert "--update" in ran.err
    assert written(tmp_path / "jobs")["max_attempts"] == 3


def test_update_changes_what_is_given_and_keeps_the_rest(run, tmp_path):
    run("init", "jobs", "--max-attempts", "3", "--retry-base", "10s", "--layout", "flat")
    assert run("init", "jobs", "--update", "--retry-cap", "1h", "--lease", "30s").code == 0
    content = written(tmp_path / "jobs")
    assert content["max_attempts"] == 3
    assert content["layout"] == "flat"
    assert content["retry"] == {"base_seconds": 10, "cap_seconds": 3600, "factor": 2}
    assert (content["lease_seconds"], content["heartbeat_seconds"]) == (30, 10)


def test_the_layout_of_a_queue_stays(run, tmp_path):
    run("init", "jobs", "--layout", "flat")
    ran = run("init", "jobs", "--update", "--layout", "sharded")
    assert ran.code == 78
    assert written(tmp_path / "jobs")["layout"] == "flat"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--max-attempts", "0"], "max_attempts is 0"),
        (["--lease", "10s", "--heartbeat", "9s"], "at most half"),
        (["--retry-factor", "0.5"], "retry.factor"),
    ],
)
def test_a_policy_that_can_not_work_is_refused_and_nothing_is_made(run, tmp_path, words, says):
    ran = run("init", "jobs", *words)
    assert ran.code == 78
    assert says in ran.err
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"dfq": 99}', "Upgrade"),
        (b'{"max_atempts": 3}', "max_attempts"),
    ],
)
def test_a_file_that_can_not_be_read_is_left_alone(run, tmp_path, content, says):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "queue.json").write_bytes(content)
    ran = run("init", "jobs", "--update", "--max-attempts", "3")
    assert ran.code == 78
    assert says in ran.err
    assert (tmp_path / "jobs" / "queue.json").read_bytes() == content


def test_a_folder_that_can_not_be_made_is_told(run, tmp_path):
    (tmp_path / "file").write_text("")
    ran = run("init", "file/jobs")
    assert ran.code == 74
    assert "file/jobs" in ran.err
    assert "Traceback" not in ran.err


def test_a_queue_in_memory_has_no_policy_file(run, url):
    assert run("init", url).code == 2


def test_init_as_json_prints_the_policy(run, tmp_path):
    assert run("init", "jobs", "--max-attempts", "3", "--json").json["max_attempts"] == 3
