"""Input that can't be stored: a clear error, nothing stored, nothing outside touched."""

from __future__ import annotations

import dataclasses
import os

import orjson
import pytest

from dfq.errors import DependencyCycle, InvalidConfig, InvalidTask

BAD_IDS = {
    "empty": "",
    "slash": "a/b",
    "absolute": "/etc/passwd",
    "dot": ".",
    "dot dot": "..",
    "up and away": "../../away",
    "hidden": ".hidden",
    "nul": "a\0b",
    "newline": "a\n",
    "blank": "a b",
    "too long": "k" * 201,
    "far too long": "k" * 100_000,
    "not utf-8": os.fsdecode(b"a\xff"),
    "not ascii": "é",
    "full-width dot": "\uff0e\uff0e",
}
bad_ids = pytest.mark.parametrize("bad", BAD_IDS.values(), ids=BAD_IDS.keys())

VERBS = {
    "push": lambda queue, bad: queue.push(1, id=bad),
    "depends_on": lambda queue, bad: queue.push(1, depends_on=[bad]),
    "new_task": lambda queue, bad: queue.new_task(1, id=bad),
    "get": lambda queue, bad: queue.get(bad),
    "requeue": lambda queue, bad: queue.requeue(bad),
    "cancel": lambda queue, bad: queue.cancel(bad),
    "bury": lambda queue, bad: queue.bury(bad),
    "load_state": lambda queue, bad: queue.load_state(bad),
}


def deep(levels, kind):
    value = "core"
    for _ in range(levels):
        value = {"k": value} if kind is dict else kind([value])
    return value


class Anything:
    pass


BAD_PAYLOADS = {
    "object": Anything(),
    "set": {1},
    "bytes": b"raw",
    "number as key": {1: 2},
    "nan": float("nan"),
    "infinity within": {"a": [1, float("-inf")]},
    "lone surrogate": "\udc80",
    "lone surrogate as key": {"\udc80": 1},
    "huge number": 2**70,
    "10,000 lists": deep(10_000, list),
    "10,000 tuples": deep(10_000, tuple),
    "10,000 objects": deep(10_000, dict),
    "too large": "x" * 1_048_576,
    "endless": (lambda loop: loop.append(loop) or loop)([]),
}
bad_payloads = pytest.mark.parametrize("bad", BAD_PAYLOADS.values(), ids=BAD_PAYLOADS.keys())


def everything(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*"))


def message_of(error):
    """What the user reads: short, and on one line."""
    text = str(error.value)
    assert text
    assert "\n" not in text and "\0" not in text
    assert len(text) < 1_000
    return text


@bad_ids
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_a_bad_id_is_refused_by_every_verb_and_nothing_is_touched(folder, tmp_path, verb, bad):
    queue = folder.open()
    queue.push(1, id="good")
    before = everything(tmp_path)
    with pytest.raises(InvalidTask) as error:
        verb(queue, bad)
    assert "id" in message_of(error)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("bad", [None, 5, b"a", ["a"]])
def test_an_id_that_is_no_string_is_refused(folder, bad):
    with pytest.raises(InvalidTask):
        folder.open().get(bad)


@bad_ids
def test_a_forged_task_does_not_bring_a_bad_id_past_the_check(folder, tmp_path, bad):
    queue = folder.open()
    queue.push(1, id="good")
    forged = dataclasses.replace(queue.new_task(1), id=bad)
    with pytest.raises(InvalidTask):
        queue.push_many([queue.new_task(2, id="neighbour"), forged])
    assert [p.name for p in tmp_path.iterdir()] == ["queue"]
    assert [record.task.id for record in queue.list()] == ["good"]
    assert folder.rubbish() == []


def test_a_forged_payload_that_is_not_json_is_not_stored(folder):
    queue = folder.open()
    forged = dataclasses.replace(queue.new_task(1), payload=b'{"torn":')
    with pytest.raises(InvalidTask):
        queue.push_many([forged])
    assert queue.stats().pending == 0


@bad_payloads
def test_a_bad_payload_is_refused_and_nothing_is_stored(folder, bad):
    queue = folder.open()
    with pytest.raises(InvalidTask) as error:
        queue.push(bad, id="a")
    assert "payload" in message_of(error)
    assert queue.get("a") is None


@bad_payloads
def test_a_bad_result_or_state_is_refused_and_the_lease_still_holds(folder, bad):
    queue = folder.open()
    queue.push(1, id="a")
    lease = queue.claim()
    with pytest.raises(InvalidTask) as error:
        queue.ack(lease, bad)
    assert "result" in message_of(error)
    with pytest.raises(InvalidTask) as error:
        queue.save_state(lease, bad)
    assert "state" in message_of(error)
    queue.ack(lease, "fine")
    assert queue.get("a").result == "fine"


def test_the_largest_payload_of_the_policy_goes_in_and_comes_out(folder):
    queue = folder.open(max_payload_bytes=5_000, max_result_bytes=5_000)
    queue.push("x" * 4_998, id="a")
    with pytest.raises(InvalidTask, match=r"5,001 bytes of JSON; this queue takes 5,000"):
        queue.push("x" * 4_999)
    lease = queue.claim()
    assert lease.task.payload == "x" * 4_998
    queue.ack(lease, "y" * 4_998)
    assert queue.get("a").result == "y" * 4_998


def test_the_deepest_payload_that_is_taken_can_be_worked_on(folder):
    queue = folder.open()
    payload = deep(200, list)
    queue.push(payload, id="a")
    lease = queue.claim()
    assert lease.task.payload == payload
    queue.nack(lease, "again", delay=0)
    queue.ack(queue.claim(), payload)
    assert queue.get("a").result == payload


def test_a_long_history_of_long_errors_keeps_the_task_readable(folder):
    queue = folder.open(max_attempts=40, max_payload_bytes=1_000, max_result_bytes=1_000)
    queue.push("x" * 990, id="a")
    for _ in range(39):
        queue.nack(queue.claim("w" * 200), "\x01\U0001f600" * 10_000, delay=0)
    lease = queue.claim()
    assert lease.attempt == 40
    assert len(lease.task.errors) == 20
    queue.ack(lease)


def test_an_error_text_that_is_not_unicode_is_kept_readable(folder):
    queue = folder.open()
    queue.push(1, id="a", max_attempts=1)
    queue.nack(queue.claim(), os.fsdecode(b"no such file: \xff\0"))
    assert "no such file" in queue.get("a").task.errors[0].message


@pytest.mark.parametrize("bad", ["", "w" * 201, "a\nb", "\udc80", 5])
def test_a_worker_name_that_can_not_be_stored_is_refused(folder, bad):
    queue = folder.open()
    queue.push(1, id="a")
    with pytest.raises(InvalidConfig):
        queue.claim(bad)
    assert queue.get("a").state == "ready"


def test_a_task_can_not_wait_for_itself(folder):
    queue = folder.open()
    with pytest.raises(DependencyCycle):
        queue.push(1, id="a", depends_on=["a"])
    assert queue.get("a") is None


# The command line


def told_off(process, code):
    """A message and no traceback, the code that scripts rely on; returns the message."""
    error = process.stderr.decode(errors="surrogateescape")
    assert process.returncode == code, error
    assert "Traceback" not in error and "bug" not in error
    assert error.strip()
    return error


ARGUMENT_IDS = {name: bad for name, bad in BAD_IDS.items() if "\0" not in bad}


@pytest.mark.parametrize(
    "bad", [ARGUMENT_IDS[n] for n in ("empty", "slash", "dot dot", "too long", "not utf-8")]
)
def test_push_on_the_command_line_refuses_a_bad_id(cli, tmp_path, bad):
    told_off(cli("push", "jobs", "1", "--id", os.fsencode(bad)), 65)
    assert not list(tmp_path.glob("jobs/pending/*/*"))


@pytest.mark.parametrize("command", ["show", "requeue", "cancel", "bury"])
def test_commands_that_take_an_id_refuse_a_bad_one(cli, command):
    assert cli("push", "jobs", "1", "--id", "good").returncode == 0
    assert "id" in told_off(cli(command, "jobs", b"../\xff"), 65)


def test_rows_with_bad_ids_are_refused_by_line(cli):
    for bad in ("a/b", "..", "a\0b", "", "k" * 201):
        rows = orjson.dumps({"id": "fine", "n": 1}) + b"\n" + orjson.dumps({"id": bad, "n": 2})
        error = told_off(cli("push", "jobs", "-", "--id-field", "id", stdin=rows), 65)
        assert "2" in error


BAD_LINES = {
    "not JSON": b'{"a":',
    "NaN": b'{"a": NaN}',
    "nested 10,000 deep": b"[" * 10_000 + b"]" * 10_000,
    "too large": b'"' + b"x" * 1_048_576 + b'"',
    "not UTF-8": b'"\xff"',
    "a NUL": b'"\0"',
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_bad_line_on_stdin_is_told_and_the_lines_before_it_are_pushed(cli, line):
    told_off(cli("push", "jobs", "-", stdin=b"1\n" + line + b"\n3\n"), 65)
    stats = orjson.loads(cli("stats", "jobs", "--json").stdout)
    assert stats["ready"] == 1
