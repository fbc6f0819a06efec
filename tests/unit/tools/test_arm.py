"""What decides whether a wheel, a count or a size passes: each can say no."""

from __future__ import annotations

import zipfile

import pytest

from benches.arm import calls, memory
from tools.arm import core, history, toolchain, wheel
from tools.arm.places import REPOSITORY, TARGETS
from tools.arm.shell import Failed, run, show

ARM64 = TARGETS["aarch64"]
NAME = "dfq-1.0-cp311-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64.whl"


@pytest.fixture
def make_wheel(tmp_path):
    """A wheel with one extension: its processor, its size, its file name."""

    def make(machine=183, size=1000, name=NAME):
        path = tmp_path / name
        extension = b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("dfq/_core.abi3.so", extension.ljust(size, b"\0"))
        return path

    return make


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"machine": 62}, "not for aarch64"),
        ({"size": wheel.MAX_EXTENSION_BYTES + 1}, "2,000,001 bytes"),
        ({"name": NAME.replace("cp311-abi3", "cp312-cp312")}, "should be cp311-abi3"),
        ({"name": NAME.replace("2_17", "2_28")}, "manylinux_2_17"),
    ],
    ids=["another processor", "too large", "one Python only", "a newer system"],
)
def test_a_wheel_that_is_not_what_it_should_be_is_refused(make_wheel, wrong, said):
    with pytest.raises(Failed, match=said):
        wheel.check(make_wheel(**wrong), ARM64)


def test_a_wheel_without_an_extension_is_refused(tmp_path):
    path = tmp_path / NAME
    zipfile.ZipFile(path, "w").close()
    with pytest.raises(Failed, match="0 extensions"):
        wheel.check(path, ARM64)


def test_a_compiler_too_old_for_the_sources_is_refused():
    toolchain._check_age("1.96.0+dfsg1-1~deb12u2")
    with pytest.raises(Failed, match="security"):
        toolchain._check_age("1.85.0+dfsg3-1~deb12u3")


def test_a_step_that_fails_says_what_it_printed():
    with pytest.raises(Failed, match="ended with 3:\nwhy"):
        run(["sh", "-c", "echo why; exit 3"], seconds=10)


def test_a_step_ends_in_time_and_with_it_what_it_started(tmp_path):
    with pytest.raises(Failed, match="still running"):
        show(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"], seconds=0.5)
    pid = tmp_path.joinpath("pid").read_text().strip()
    with pytest.raises(Failed):
        run(["sh", "-c", f"kill -0 {pid} && ! grep -q 'State:.Z' /proc/{pid}/status"], seconds=5)


TRACE = f"""1 read(3,0x1,9) = 9
{calls.BEGIN}
1 openat(3,"a",O_WRONLY) = 7
1 write(7,0x10,406) = 406
1 write(2,0x10,9) = 9
7 futex(0x1,128) = 0
1 renameat2(3,"a",3,"b",1) = -1 errno=17 (File exists)
{calls.END}
1 close(7) = 0
"""


def test_only_calls_between_the_marks_count_and_only_bytes_to_files():
    assert calls.tally("\n" + TRACE) == {
        "openat": 1, "write": 2, "renameat2": 1, "bytes written": 406,
    }  # fmt: skip


def test_a_trace_that_is_cut_off_is_no_count():
    with pytest.raises(AssertionError, match="no counted part"):
        calls.tally("\n" + TRACE.partition(calls.END)[0])


SMAPS = """00400000-00916000 r--p 00000000 fe:00 1   /usr/bin/python3.11
Rss:                3456 kB
5500001000-5500801000 rw-p 00000000 00:00 0
Rss:                  44 kB
7f0058000000-7f005ffff000 rwxp 00000000 00:00 0
Rss:               20480 kB
7f0067c00000-7f0067e28000 r--p 00000000 fe:00 2   /usr/bin/qemu-aarch64-static
Rss:                2208 kB
"""


def test_memory_of_the_emulator_is_not_the_programs():
    assert memory.split(SMAPS) == (3500, 22688)


def test_without_an_emulator_all_memory_is_the_programs():
    native = SMAPS.replace("/usr/bin/qemu-aarch64-static", "/usr/lib/libc.so.6")
    assert memory.split(native) == (26188, 0)


def measured(ratio=2.9, **calls_of_a_claim):
    return history.Measured(
        suite="bookworm",
        calls={"claim_and_ack": calls_of_a_claim},
        ratios={"claim + ack": ratio, "scan + shuffle of 10,000": 3.1},
        idle_kilobytes=20_000,
    )


BASELINE = {
    "bookworm": {
        "calls": {"claim_and_ack": {"openat": 5.0, "bytes written": 412.0}},
        "ratios": {"claim + ack": 2.9, "scan + shuffle of 10,000": 6.1},
    }
}


def test_one_more_system_call_a_task_is_found():
    found = history.worse(measured(openat=6.0, **{"bytes written": 412.0}), BASELINE)
    assert found == ["claim_and_ack: openat 6 a task, 5 before"]


def test_a_call_that_is_new_is_found():
    found = history.worse(measured(openat=5.0, fsync=1.0), BASELINE)
    assert found == ["claim_and_ack: fsync 1 a task, 0 before"]


def test_more_bytes_a_task_are_found():
    found = history.worse(measured(openat=5.0, **{"bytes written": 450.0}), BASELINE)
    assert found == ["claim_and_ack: bytes written 450 a task, 412 before"]


def test_fewer_calls_are_no_trouble():
    assert history.worse(measured(openat=4.0), BASELINE) == []


def test_half_of_a_ratio_gone_is_found_and_less_is_not():
    assert history.worse(measured(ratio=1.5), BASELINE) == []
    found = history.worse(measured(ratio=1.4), BASELINE)
    assert found == ["claim + ack: 1.4 times the first design, 2.9 times before"]


def test_a_release_without_a_baseline_is_refused():
    with pytest.raises(Failed, match="KEEP=1"):
        history.worse(measured(), {})


def test_a_ratio_below_the_promise_is_said():
    (line,) = history.shortfalls(measured())
    assert "claim + ack: 2.9 times" in line


def test_the_committed_baseline_has_both_releases_and_every_verb():
    baseline = history.read_baseline()
    assert set(baseline) == {"bookworm", "trixie"}
    for kept in baseline.values():
        counts = kept["calls"]
        assert set(counts) == {"claim_and_ack", "push_many", "push_one_by_one"}
        # Of these a task has one, whatever else changes.
        assert counts["push_one_by_one"]["renameat2"] == 1.0
        assert set(kept["ratios"]) == set(history._RATIOS)


@pytest.mark.parametrize(
    ("node_id", "runs"),
    [
        ("tests/conformance/test_lease.py::test_a[file-1]", True),
        ("tests/conformance/test_lease.py::test_a[a handle each-s3 on moto]", True),
        ("tests/conformance/test_time.py::test_a[s3 on moto]", False),
        ("tests/conformance/test_settle.py::test_a[late-s3 on moto]", False),
        ("tests/conformance/stores/test_store.py::test_a[moto-1]", True),
        ("tests/unit/usv/test_merge.py::test_a[memory]", True),
    ],
)
def test_the_core_is_what_its_list_says(node_id, runs):
    assert (core._reason(node_id) is None) is runs


def test_all_that_the_core_names_is_there():
    missing = [path for path in core.CORE if not (REPOSITORY / path.partition("::")[0]).exists()]
    assert missing == []
