"""The binding of the merge, and every bad input that concerns it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading

import pytest

from dfq import _core
from tests.models.index_model import written
from tests.unit.usv.conftest import DAY_NS, NOW_NS

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def test_the_newest_record_of_a_key_wins_and_the_shard_is_sorted(merge, row):
    merge(row("b", "old", OLD), row("c", "1"), row("a", "2"))
    assert merge(row("b", "new", NEW)) == row("a", "2") + row("b", "new", NEW) + row("c", "1")
    report = merge.report
    assert (report["records"], report["taken"], report["superseded"]) == (3, 1, 0)
    assert report["changed"]
    assert report["newest_ns"] == _core.parse_time_ns(NEW)


def test_the_hash_and_the_size_are_those_of_the_output(merge, row):
    content = merge(*(row(f"key-{number}", "x" * 1000) for number in range(1000)))
    assert merge.report["sha256"] == hashlib.sha256(content).hexdigest()
    assert merge.report["bytes"] == len(content)


def test_a_record_that_is_canonical_stays_as_it_is(merge):
    record = "k\x1f\x1b[31mred\x1b[0m\x1bn ␟ü\x1f2026-01-01T00:00:00.000+01:00\x1f\n".encode()
    assert merge(record) == record


def test_times_are_compared_as_moments_not_as_texts(merge, row):
    earlier = row("k", "earlier", "2026-01-01T23:00:00+05:00")
    later = row("k", "later", "2026-01-01T19:00:00")
    assert merge(earlier, later) == later
    finer = row("k", "finer", "2026-01-01T19:00:00.000000001")
    assert merge(finer) == finer


def test_equal_times_are_decided_by_tombstones_then_by_the_fields(merge, row):
    assert merge(row("k", "b"), row("k", "a")) == row("k", "b")
    tombstone = row("k", "a", deleted="yes")
    assert merge(tombstone, row("k", "c")) == tombstone
    assert merge.report["tombstones"] == 1


def test_a_tombstone_keeps_an_older_record_away_until_it_is_dropped(merge, row):
    tombstone = row("k", updated=NEW, deleted=NEW)
    merge(tombstone, row("other"))
    assert merge(row("k", "late", OLD)) == tombstone + row("other")
    horizon = _core.parse_time_ns(NEW) + 1
    assert merge(drop_deleted_before_ns=horizon) == row("other")
    assert merge.report["dropped"] == 1
    assert merge.report["changed"]


def test_a_tombstone_that_is_too_old_takes_its_record_along(merge, row):
    merge(row("k", "old", OLD))
    horizon = _core.parse_time_ns(NEW) + 1
    assert merge(row("k", updated=NEW, deleted="x"), drop_deleted_before_ns=horizon) == b""
    assert merge.report["changed"]


def test_records_that_were_there_already_change_nothing(merge, row):
    merge(row("k", "v"))
    merge(row("k", "v"))
    report = merge.report
    assert (report["changed"], report["taken"], report["superseded"]) == (False, 0, 1)


def test_nothing_makes_nothing(merge):
    assert merge(b"", b"\n\n\x1e\n") == b""
    assert not merge.report["changed"]
    assert merge.report["newest_ns"] is None


def test_a_schema_that_grew_pads_what_is_there(merge, row):
    merge(row("a", "1"), row("b", "2"))
    assert merge(row("b", "2"), columns=5) == b"".join(
        row(key, value)[:-1] + b"\x1f\n" for key, value in (("a", "1"), ("b", "2"))
    )
    assert merge.report["changed"]
    assert merge.report["superseded"] == 1


def test_a_short_record_is_padded(merge):
    assert merge(b"k\x1fv\x1f2026-01-01\n") == b"k\x1fv\x1f2026-01-01\x1f\n"
    assert merge.report["padded"] == 1


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (b"k\x1f\xff\x1f2026-01-01\x1f", "not_utf8"),
        (b"\x1fv\x1f2026-01-01\x1f", "missing_key"),
        (b"\x1f\x1f\x1f", "missing_key"),
        (b"\x1f", "missing_key"),
        (b"k\x1fv\x1f\x1f", "missing_updated_at"),
        (b"k", "missing_updated_at"),
        (b"k\x1fv\x1fyesterday\x1f", "bad_updated_at"),
        (b"k\x1fv\x1f2026-02-30T00:00:00Z\x1f", "bad_updated_at"),
        (b"k\x1fv\x1f2026-01-01\x1f\x1fmore", "too_many_fields"),
        (b"k\x1fv\x1f2026-01-01\x1f\x1f\x1f", "too_many_fields"),
        (b"k\x1fv\x1f2026-01-01\x1f\r", "bad_deleted_at"),
        (b"k\x1f" + b"x" * 2000 + b"\x1f2026-01-01\x1f", "too_long"),
    ],
)
def test_a_bad_record_is_set_aside_with_its_bytes_and_the_rest_goes_on(merge, row, record, kind):
    body = row("a") + record + b"\n" + row("z")
    assert merge(body, max_record_bytes=1000) == row("a") + row("z")
    assert merge.kinds() == [(2, kind)]
    assert merge.raw() == [record]
    ((name, _, _, message, _, _),) = merge.report["rejects"]
    assert name == "entry-0"
    assert message.startswith(("it", "5 fields", "6 fields"))


def test_a_lone_record_separator_cuts_a_record_and_nothing_of_it_is_lost(merge, row):
    merge(b"k\x1fa\x1eb\x1f2026-01-01\x1f\n")
    assert merge.kinds() == [(1, "missing_updated_at"), (2, "missing_updated_at")]
    assert merge.raw() == [b"k\x1fa", b"b\x1f2026-01-01\x1f"]


def test_a_file_without_rejects_leaves_no_file_of_them(merge, row):
    merge(row("k"))
    assert not (merge.folder / "rejects-1").exists()


def test_keys_that_differ_in_case_are_one_if_the_rule_says_so(merge, row):
    merge.rules["key_rule"] = "lower"
    assert merge(row("Ä", "1", OLD), row("ä", "2", NEW)) == row("ä", "2", NEW)
    assert merge.report["normalised"] == 1
    merge.rules["key_rule"] = "domain"
    assert b"example.com\x1f" in merge(row(" Example.COM. ", "3"))


def test_one_key_many_times_in_one_file_ends_in_its_newest(merge, row):
    body = b"".join(row("k", str(day), f"2026-01-{day:02d}") for day in (3, 9, 1, 9, 5))
    assert merge(body) == row("k", "9", "2026-01-09")
    assert merge.report["superseded"] == 4


def test_a_record_from_the_day_after_tomorrow_is_kept_and_told(merge, row):
    late = "2026-11-19T09:03:00.000000001Z"
    assert _core.parse_time_ns(late) == NOW_NS + DAY_NS + 1
    kept = row("a", updated="2026-11-19T09:03:00Z") + row("b", updated=late)
    assert merge(kept) == kept
    assert merge.report["future"] == [("entry-0", 2)]


def test_the_future_is_told_a_hundred_times_at_most(merge, row):
    merge(b"".join(row(f"k{number}", updated="2030-01-01") for number in range(150)))
    assert len(merge.report["future"]) == 100
    assert merge.report["records"] == 150


def test_a_record_of_another_shard_is_told_and_kept_aside(merge, row):
    own = _core.shard_of("k")
    other = next(f"{n}" for n in range(1000) if _core.shard_of(f"{n}") != own)
    assert merge(row("k") + row(other), shard=own) == row("k")
    assert merge.kinds() == [(2, "misplaced")]
    assert merge.raw() == [row(other)[:-1]]


def test_a_symlink_is_not_followed(merge, row, tmp_path):
    (tmp_path / "real.usv").write_bytes(row("secret"))
    (tmp_path / "link.usv").symlink_to(tmp_path / "real.usv")
    assert merge(tmp_path / "link.usv", row("k")) == row("k")
    ((_, record, kind, message, _, length),) = merge.report["rejects"]
    assert (record, kind, length) == (0, "not_a_file", 0)
    assert "symlink" in message


def test_a_pipe_or_a_folder_in_the_inbox_blocks_nothing(merge, row, tmp_path):
    os.mkfifo(tmp_path / "pipe.usv")
    (tmp_path / "folder.usv").mkdir()
    merge(tmp_path / "pipe.usv", tmp_path / "folder.usv", row("k"))
    assert merge.kinds() == [(0, "not_a_file"), (0, "not_a_file")]


def test_an_inbox_file_that_went_away_is_told(merge, row, tmp_path):
    assert merge(tmp_path / "gone.usv", row("k")) == row("k")
    assert merge.kinds() == [(0, "missing")]


def test_files_and_bodies_are_merged_alike(merge, new_merge, row, tmp_path):
    body = row("a") + b"bad\n" + row("b")
    (tmp_path / "a.usv").write_bytes(body)
    other = new_merge()
    assert merge(tmp_path / "a.usv") == other(body)
    assert merge.report == other.report


def test_the_last_record_of_an_inbox_file_may_lack_its_line_feed(merge, row):
    assert merge(row("k", "v")[:-1]) == row("k", "v")


def test_a_file_that_grows_while_it_is_read_counts_as_it_was(merge, row, tmp_path):
    path = tmp_path / "grows.usv"
    path.write_bytes(row("k0"))
    stop = threading.Event()

    def grow():
        with path.open("ab") as file:
            number = 0
            while not stop.is_set():
                number += 1
                file.write(row(f"k{number}"))
                file.flush()

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        merge(path)
    finally:
        stop.set()
        writer.join()
    # It ended, though the file did not; what it saw is a beginning of the file.
    assert 1 <= merge.report["records"] <= path.read_bytes().count(b"\n")


HUGE = """
import pathlib, sys
from dfq import _core
folder = pathlib.Path(sys.argv[1])
path = folder / "huge.usv"
with path.open("wb") as file:
    file.write(b"a\\x1fv\\x1f2026-01-01\\x1f\\nhuge\\x1f")
    for _ in range(100):
        file.write(b"x" * 1_000_000)
    file.write(b"\\x1f2026-01-01\\x1f\\nb\\x1fv\\x1f2026-01-01\\x1f\\n")
rules = dict(columns=4, key=0, updated_at=2, deleted_at=3, key_rule="exact", shard=None,
             drop_deleted_before_ns=None, now_ns=0, max_record_bytes=1 << 20,
             memory_bytes=1 << 20, scratch=str(folder))
report = _core.merge_usv(None, [("huge", str(path))], f"{folder}/out", f"{folder}/rejects", rules)
((_, record, kind, _, offset, length),) = report["rejects"]
assert (record, kind, offset, length) == (2, "too_long", 0, 100_000_017), report
assert report["records"] == 2
assert (folder / "rejects").stat().st_size == length + 1
peak = next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]
print(peak)
"""


def test_a_field_of_100_megabytes_is_set_aside_in_little_memory(tmp_path):
    command = [sys.executable, "-c", HUGE, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 60_000  # in KB; the interpreter included


def test_a_flood_of_rejects_is_told_in_lots(merge):
    merge(b"x\n" * 25_000)
    rejects = merge.report["rejects"]
    assert len(rejects) == 10_000
    last = merge.raw()[-1]
    assert last.split(b"\n") == [b"x"] * 15_001
    assert "records 10000 to 25000" in rejects[-1][3]
    assert sum(reject[5] + 1 for reject in rejects) == len(merge.rejected) == 50_000


PEAK = """
import pathlib, sys
from dfq import _core
folder = pathlib.Path(sys.argv[1])
shard = folder / "shard.usv"
rules = dict(columns=4, key=0, updated_at=2, deleted_at=3, key_rule="exact", shard="00",
             drop_deleted_before_ns=None, now_ns=0, max_record_bytes=16 << 20,
             memory_bytes=1 << 20, scratch=str(folder))
def peak():
    line = next(l for l in open("/proc/self/status") if l.startswith("VmHWM"))
    return int(line.split()[1])
"""


def peak_kb_of(code, folder):
    """What the peak of memory of a new process grows by."""
    command = [sys.executable, "-c", f"{PEAK}{code}", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(ran.stdout)


def test_a_flood_of_rejects_of_many_kinds_is_told_in_little_memory(tmp_path):
    code = """
path = folder / "flood.usv"
path.write_bytes(b"a\\n\\x1f\\n" * 1_000_000)
before = peak()
report = _core.merge_usv(None, [("a", str(path))], f"{folder}/out", f"{folder}/rejects", rules)
assert len(report["rejects"]) == 10_000
print(peak() - before)
"""
    assert peak_kb_of(code, tmp_path) < 25_000


@pytest.mark.parametrize(
    "call",
    [
        '_core.merge_usv(str(shard), [], f"{folder}/out", f"{folder}/rejects", rules)',
        '_core.find_usv(str(shard), "a", 4, 0, "exact")',
    ],
)
def test_a_shard_without_line_feeds_is_damaged_and_never_loaded(tmp_path, call):
    code = f"""
with shard.open("wb") as file:
    file.truncate(300_000_000)
before = peak()
try:
    {call}
except _core.CoreError as error:
    assert error.args[0] == "damaged", error
else:
    raise AssertionError("it was taken for a shard")
print(peak() - before)
"""
    # Twice the greatest record, and what is on top of it.
    assert peak_kb_of(code, tmp_path) < 45_000


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda a, b, c: a + c + b, "is not in the order of keys"),
        (lambda a, b, c: a + b + b, "has the key of the one before it"),
        (lambda a, b, c: a + b + c[:-1], "is torn"),
        (lambda a, b, c: a + b + c[:-20], "is torn"),
        (lambda a, b, c: a + b"\n" + b, "has no key"),
        (lambda a, b, c: a + b.replace(b"v", b"\xff"), "is not UTF-8"),
        (lambda a, b, c: a + b.replace(b"v", b"\x1e"), "has a 0x1E"),
        (lambda a, b, c: a + b.replace(b"2026", b"soon"), "updated_at that is no time"),
        (lambda a, b, c: a + b.replace(b"v", b"v\x1fv"), "has 5 fields"),
        (lambda a, b, c: a + b.replace(b"b", b"\x1bx"), "the rule for keys"),
    ],
)
def test_a_damaged_shard_is_an_error_that_names_the_record(merge, row, spoil, problem):
    merge.shard.write_bytes(spoil(row("a", "v"), row("b", "v"), row("c", "v")))
    before = merge.shard.read_bytes()
    with pytest.raises(_core.CoreError, match=problem) as caught:
        merge(row("k"))
    kind, message = caught.value.args
    assert kind == "damaged"
    assert str(merge.shard) in message
    assert "record " in message
    assert merge.shard.read_bytes() == before


def test_a_shard_that_is_a_symlink_is_refused(merge, row, tmp_path):
    (tmp_path / "elsewhere").write_bytes(row("k"))
    merge.shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(_core.CoreError, match="symlink"):
        merge(row("k"))


def test_a_file_that_is_there_is_not_overwritten(merge, row, tmp_path):
    (tmp_path / "output-1").write_text("mine")
    with pytest.raises(_core.CoreError, match="can't create"):
        merge(row("k"))
    assert (tmp_path / "output-1").read_text() == "mine"


def test_what_is_written_is_for_its_owner_alone(merge, row):
    merge(row("k"))
    assert merge.shard.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": 4},
        {"deleted_at": 2},
        {"key_rule": "upper"},
        {"shard": "0g"},
        {"max_record_bytes": 0},
    ],
)
def test_rules_that_can_not_be_are_refused(merge, row, wrong):
    with pytest.raises(ValueError, match=r"column|key rule|shard|max_record_bytes"):
        merge(row("k"), **wrong)


def test_many_runs_are_merged_in_steps(new_merge, row):
    bodies = [row(f"key-{number * 7919 % 3000:05d}", str(number)) for number in range(5000)]
    held, spilled = new_merge(), new_merge()
    assert spilled(*bodies, memory_bytes=100) == held(*bodies)
    assert spilled.report["superseded"] == held.report["superseded"] == 2000


def test_written_rows_are_the_models(row):
    rows = [["k", "a\nb\x1f\x1e\x1b\r", "", "ü"]]
    assert _core.join_usv(rows) == written(rows)
