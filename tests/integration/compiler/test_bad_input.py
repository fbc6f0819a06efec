"""What people and programs leave in an index that is not as it should be. Nothing is dropped."""

from __future__ import annotations

import os

import orjson
import pytest

from dfq.compiler.passes import Bounds
from dfq.stores.local import LocalStore
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock
from tests.indexes import (
    WALL,
    drop,
    is_settled,
    keys_of,
    make_index,
    model_of,
    open_index,
    outcomes,
    quarantined,
    row,
    shards_of,
)
from tests.models.index_model import written

ONE = "5e"
FIRST, SECOND, THIRD = keys_of(ONE, 3)
INLINE = Bounds(parallel=1)


@pytest.fixture
def clock():
    return FakeClock(WALL)


@pytest.fixture(params=["local", "memory"])
def store(request, clock, tmp_path):
    if request.param == "local":
        return LocalStore(tmp_path / "index", clock=clock, time_of="clock")
    return MemoryStore(clock=clock)


@pytest.fixture
def index(store, clock):
    return make_index(store, clock=clock)


def reasons(store):
    keys = [entry.key for entry in store.list("quarantine/").entries]
    found = [orjson.loads(store.read(key).body) for key in keys if key.endswith("reason.json")]
    return [record["reason"] for one in found for record in one["records"]]


GOOD = written([row(FIRST)])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (f"{SECOND}\x1f\udcff\x1f2023-11-01T00:00:00Z\x1f\n", "not_utf8"),
        ("\x1fBern\x1f2023-11-01T00:00:00Z\x1f\n", "missing_key"),
        (f"{SECOND}\x1fBern\x1f\x1f\n", "missing_updated_at"),
        (f"{SECOND}\x1fBern\n", "missing_updated_at"),
        (f"{SECOND}\x1fBern\x1fyesterday\x1f\n", "bad_updated_at"),
        (f"{SECOND}\x1fBern\x1f2023-11-01T00:00:00Z\x1f\x1fmore\x1fand more\n", "too_many_fields"),
        ("\x1f\x1f\x1f\n", "missing_key"),
    ],
)
@pytest.mark.parametrize("place", [f"inbox/{ONE}/", "inbox/", ""])
def test_a_bad_record_is_set_aside_and_its_neighbours_go_on(store, index, bad, reason, place):
    raw = bad.encode("utf-8", "surrogateescape")
    drop(store, f"{place}file.usv", GOOD + raw + written([row(THIRD)]))
    report = index.compile(bounds=INLINE)
    assert shards_of(store) == model_of(GOOD, written([row(THIRD)]))
    assert quarantined(store) == [raw]
    assert reasons(store) == [reason]
    assert [(one.source, one.record, one.reason) for one in report.quarantined] == [
        (f"{place}file.usv", 2, reason)
    ]
    assert is_settled(store)


def test_a_field_of_100_mb_goes_to_quarantine_through_the_disk(store, index):
    huge = f"{SECOND}\x1f".encode() + b"x" * (100 << 20) + b"\x1f2023-11-01T00:00:00Z\x1f\n"
    path = os.path.join(index._site._scratch or "/tmp", f"dfq-test-huge-{os.getpid()}")
    with open(path, "wb") as file:
        file.write(GOOD + huge + written([row(THIRD)]))
    try:
        store.create_from(f"inbox/{ONE}/huge.usv", path)
    finally:
        os.unlink(path)
    report = index.compile(bounds=INLINE)
    assert [one.reason for one in report.quarantined] == ["too_long"]
    assert shards_of(store) == model_of(GOOD, written([row(THIRD)]))
    (size,) = [
        entry.size
        for entry in store.list("quarantine/").entries
        if entry.key.endswith("records.usv")
    ]
    assert size == len(huge)
    assert is_settled(store)


@pytest.mark.parametrize("body", [b"", b"\n\n\n", b"\x1e\n\x1e"])
def test_an_empty_file_is_merged_and_gone(store, index, body):
    drop(store, f"inbox/{ONE}/empty.usv", body)
    assert outcomes(index.compile(bounds=INLINE)) == {ONE: "unchanged"}
    assert shards_of(store) == {}
    assert is_settled(store)


def test_of_records_with_one_key_in_one_file_the_newest_counts(store, index):
    body = drop(
        store,
        f"inbox/{ONE}/twice.usv",
        row(FIRST, "Rome", "2023-11-03T00:00:00Z"),
        row(FIRST, "Bern", "2023-11-02T00:00:00Z"),
    )
    report = index.compile(bounds=INLINE)
    assert shards_of(store) == model_of(body)
    assert (report.shards[0].taken, report.shards[0].superseded) == (1, 1)


def test_keys_in_mixed_case_are_one_by_the_rule(store, clock):
    index = make_index(store, clock=clock, key_rule="domain")
    index.put({"domain": "Example.COM.", "city": "Bern", "updated_at": "2023-11-01T00:00:00Z"})
    drop(store, "inbox/x.usv", row("EXAMPLE.com", "Rome", "2023-11-02T00:00:00Z"))
    index.compile(bounds=INLINE)
    assert [one["domain"] for one in index.scan()] == ["example.com"]
    assert index.get("example.com.")["city"] == "Rome"
    assert index.get(" exAmple.com")["city"] == "Rome"


def test_a_record_of_the_future_is_kept_and_reported(store, index):
    body = drop(store, f"inbox/{ONE}/late.usv", row(FIRST, at="2099-01-01T00:00:00Z"))
    report = index.compile(bounds=INLINE)
    assert report.shards[0].future == ((f"inbox/{ONE}/late.usv", 1),)
    assert shards_of(store) == model_of(body)


def test_a_record_in_the_wrong_inbox_is_moved(store, index):
    (other,) = keys_of("a0", 1)
    body = drop(store, f"inbox/{ONE}/mixed.usv", row(FIRST), row(other))
    report = index.compile(bounds=INLINE)
    assert shards_of(store) == model_of(body)
    assert sum(one.refiled for one in report.shards) == 1
    assert is_settled(store)


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"expires_at": 7}', b"\xff" * 1000])
def test_a_lock_that_is_garbage_is_over_when_it_is_old(store, index, clock, garbage):
    store.put(f"shards/{ONE}.lock", garbage)
    body = drop(store, f"inbox/{ONE}/x.usv", row(FIRST))
    assert outcomes(index.compile(bounds=INLINE)) == {ONE: "locked"}
    clock.advance(302)
    assert outcomes(index.compile(bounds=INLINE)) == {ONE: "compiled"}
    assert shards_of(store) == model_of(body)
    assert is_settled(store)


def test_a_lock_that_never_ends_is_believed_for_an_hour(store, index, clock):
    store.put(f"shards/{ONE}.lock", b'{"expires_at": "2999-01-01T00:00:00Z"}')
    drop(store, f"inbox/{ONE}/x.usv", row(FIRST))
    clock.advance(3000)
    assert outcomes(index.compile(bounds=INLINE)) == {ONE: "locked"}
    clock.advance(700)
    assert outcomes(index.compile(bounds=INLINE)) == {ONE: "compiled"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[:-1],
        lambda body: body + body,
        lambda body: b"\n".join(reversed(body.splitlines())) + b"\n",
        lambda body: body + b"zzz\xff\x1f\x1f2023-11-01T00:00:00Z\x1f\n",
        lambda body: body + b"zzz\n",
        lambda _body: b"\x00" * 100,
    ],
    ids=["torn", "twice", "unsorted", "not-utf8", "no-time", "zeros"],
)
def test_a_shard_that_can_t_be_read_is_reported_and_never_overwritten(store, index, damage):
    drop(store, f"inbox/{ONE}/1.usv", row(FIRST), row(SECOND))
    index.compile(bounds=INLINE)
    broken = damage(store.read(f"shards/{ONE}.usv").body)
    store.put(f"shards/{ONE}.usv", broken)
    (other,) = keys_of("a0", 1)
    waiting = drop(store, f"inbox/{ONE}/2.usv", row(THIRD))
    drop(store, "inbox/a0/3.usv", row(other))
    report = index.compile(bounds=INLINE)
    assert outcomes(report) == {ONE: "damaged", "a0": "compiled"}
    assert f"shards/{ONE}.usv" in report.damaged[0].message
    assert store.read(f"shards/{ONE}.usv").body == broken
    assert store.read(f"inbox/{ONE}/2.usv").body == waiting
    assert not store.list(f"shards/{ONE}.lock").entries
    assert [f.level for f in index.verify() if f.subject == f"shards/{ONE}.usv"] == ["error"]


def test_a_manifest_that_lies_is_found_and_mended_and_never_believed(store, index):
    body = drop(store, f"inbox/{ONE}/1.usv", row(FIRST))
    index.compile(bounds=INLINE)
    assert index.verify() == []
    manifest = orjson.loads(store.read("manifest.json").body)
    manifest["shards"][ONE] |= {"records": 99, "sha256": "0" * 64}
    manifest["shards"]["00"] = manifest["shards"][ONE]
    store.put("manifest.json", orjson.dumps(manifest))
    body += drop(store, f"inbox/{ONE}/2.usv", row(SECOND))
    assert index.get(FIRST)["city"] == "Bern"
    said = [finding.message for finding in index.verify()]
    assert any("records is 1, not 99" in one for one in said)
    assert any("tells of shard 00" in one for one in said)
    assert index.stats().stale == ["00"]
    index.rebuild()
    assert index.verify() == []
    index.compile(bounds=INLINE)
    assert shards_of(store) == model_of(body)
    assert index.verify() == []


@pytest.mark.parametrize(
    "garbage", [b"", b"[]", b'{"shards": {"00": {}}}', b'{"shards": {"zz": 1}}']
)
def test_a_manifest_that_is_garbage_is_written_anew(store, index, garbage):
    store.put("manifest.json", garbage)
    drop(store, f"inbox/{ONE}/1.usv", row(FIRST))
    index.compile(bounds=INLINE)
    assert index.stats().records == 1
    assert index.verify() == []


def test_files_that_are_never_compiled_are_named(store, index):
    store.put("inbox/readme.txt", b"hello")
    store.put("inbox/zz/x.usv", b"hello")
    report = index.compile(bounds=INLINE)
    assert sorted(report.ignored) == ["inbox/readme.txt", "inbox/zz/x.usv"]
    assert store.read("inbox/zz/x.usv").body == b"hello"
    assert sorted(f.subject for f in index.verify()) == ["inbox/readme.txt", "inbox/zz/x.usv"]


def test_a_link_in_the_inbox_is_not_followed_and_named(tmp_path, clock):
    store = LocalStore(tmp_path / "index", clock=clock, time_of="clock")
    index = make_index(store, clock=clock)
    (tmp_path / "secret").write_bytes(written([row(FIRST)]))
    inbox = tmp_path / "index" / "inbox" / ONE
    inbox.mkdir(parents=True)
    (inbox / "link.usv").symlink_to(tmp_path / "secret")
    (tmp_path / "index" / "inbox" / "a0").symlink_to(tmp_path)
    os.mkfifo(inbox / "pipe.usv")
    assert index.compile(bounds=INLINE).shards == []
    assert index.get(FIRST) is None
    assert [f.subject for f in index.verify()] == [
        f"inbox/{ONE}/link.usv",
        f"inbox/{ONE}/pipe.usv",
        "inbox/a0",
    ]
    assert (tmp_path / "secret").exists()


def test_a_file_that_grows_while_it_is_read_stays_until_all_of_it_is_merged(tmp_path, clock):
    store = LocalStore(tmp_path / "index", clock=clock, time_of="clock")
    index = make_index(store, clock=clock)
    path = tmp_path / "index" / "inbox" / ONE / "growing.usv"
    path.parent.mkdir(parents=True)
    path.write_bytes(written([row(FIRST)]))
    real = store.create_from

    def grow(key, output):
        with path.open("ab") as file:
            file.write(written([row(SECOND)]))
        return real(key, output)

    store.create_from = grow
    assert index.compile(bounds=INLINE).waiting == 1
    assert path.read_bytes() == written([row(FIRST), row(SECOND)])
    store.create_from = real
    assert index.compile(bounds=INLINE).waiting == 0
    assert shards_of(store) == model_of(written([row(FIRST), row(SECOND)]))
    assert is_settled(store)


def test_a_compiler_that_knows_fewer_columns_does_not_judge_newer_records(store, index, clock):
    other = open_index(store, clock=clock, seed=3)
    compiler = open_index(store, clock=clock, seed=4)
    real = compiler._site.refresh
    known = compiler.descriptor
    other.grow("phone")
    other.put({"domain": FIRST, "city": "Bern", "phone": "031"})
    assert compiler.get(FIRST)["phone"] == "031"
    compiler._site._descriptor = known
    refreshed = iter([lambda: known])
    compiler._site.refresh = lambda: next(refreshed, real)()
    compiler.compile(bounds=INLINE)
    assert quarantined(store) == []
    assert index.compile(bounds=INLINE) is not None
    assert other.get(FIRST)["phone"] == "031"
    assert quarantined(store) == []


def test_records_written_before_a_column_was_added_are_padded(store, index):
    index.put({"domain": FIRST, "city": "Bern"})
    index.compile(bounds=INLINE)
    index.put({"domain": SECOND, "city": "Rome"})
    index.grow("phone:integer")
    index.put({"domain": THIRD, "phone": 31})
    index.compile(bounds=INLINE)
    assert {one["domain"]: one["phone"] for one in index.scan()} == {
        FIRST: "",
        SECOND: "",
        THIRD: "31",
    }
    assert index.verify() == []
