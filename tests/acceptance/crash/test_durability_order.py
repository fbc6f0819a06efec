"""A power cut finds only some of the moments that matter; the order of writes, syncs and renames
shows all of them.

What is written must be synced before a rename makes it visible, and the rename must be synced
before the verb returns. Each test states the order of one verb, and reads it from strace.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from posixpath import join, normpath, relpath

import pytest

from dfq.engines.file import FileQueue

pytestmark = [pytest.mark.crash]

#: Where the ids that the verbs use belong, by the first byte of their sha256.
PUSHED, TARGET = "pending/b7", "pending/34"
ANY_SCRATCH = r"tmp/[^/]+"

_PLACE = re.compile(r'(?:\d+|AT_FDCWD)<([^>]*)>(?:, "([^"]*)")?')


@dataclass(frozen=True)
class Step:
    """A call that changes or syncs something, by paths below the root."""

    name: str
    path: str
    to: str = ""


def steps_of(traced, root: Path) -> list[Step]:
    steps = []
    for call in traced.verb():
        if " = -1 " in call.text:
            continue
        places = [normpath(join(base, name)) for base, name in _PLACE.findall(call.text)]
        if call.name == "mkdir":
            places = [call.text.split('"')[1]]
        elif call.name == "write":
            places = [_PLACE.findall(call.text)[0][0]]
        if call.name in ("write", "fsync", "syncfs", "mkdir", "mkdirat", "unlinkat"):
            name = call.name.removesuffix("at")
            steps.append(Step(name, relpath(places[0], root)))
        elif call.name in ("renameat", "renameat2"):
            source, target = (relpath(place, root) for place in places[:2])
            steps.append(Step("rename", source, target))
    return steps


class Story:
    """The steps of a verb, to be followed in order."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    def follow(self, *expected: tuple[str, ...]) -> list[Step]:
        """Each expected step comes after the one before it; returns those found."""
        found: list[Step] = []
        position = 0
        for name, path, *to in expected:
            for index in range(position, len(self.steps)):
                step = self.steps[index]
                if step.name != name or not re.fullmatch(path, step.path):
                    continue
                if to and not re.fullmatch(to[0], step.to):
                    continue
                found.append(step)
                position = index + 1
                break
            else:
                pytest.fail(f"no {name} {path} {to} after {found}, in\n{self}")
        return found

    def __str__(self) -> str:
        return "\n".join(f"  {step.name} {step.path} {step.to}" for step in self.steps)


@pytest.fixture
def watch(folder: Path, template, child, strace) -> Callable[..., Story]:
    """Make a verb under strace."""

    def run(verb: str, prepare: Callable[[Path], object] = lambda root: None) -> Story:
        root = template(verb)
        prepare(root)
        traced = strace.run(child("one_verb.py", root, verb))
        assert traced.returncode == 0, traced.stdout + traced.stderr
        return Story(steps_of(traced, root))

    return run


def test_a_push_syncs_the_file_its_directory_and_after_the_rename_the_shard(watch) -> None:
    found = watch("push").follow(
        ("write", f"{ANY_SCRATCH}/task.json"),
        ("fsync", f"{ANY_SCRATCH}/task.json"),
        ("fsync", ANY_SCRATCH),
        ("rename", ANY_SCRATCH, f"{PUSHED}/pushed"),
        ("fsync", PUSHED),
    )
    assert found[2].path == found[3].path


def test_a_push_syncs_a_new_shard_into_pending_before_a_task_relies_on_it(watch) -> None:
    watch("push").follow(
        ("mkdir", PUSHED), ("fsync", "pending"), ("rename", ANY_SCRATCH, f"{PUSHED}/pushed")
    )


def test_a_push_syncs_a_shard_that_another_process_made_and_perhaps_never_synced(watch) -> None:
    story = watch("push", lambda root: (root / PUSHED).mkdir(mode=0o700))
    story.follow(("fsync", "pending"), ("fsync", PUSHED))


def test_the_first_push_syncs_the_folder_into_its_parent(watch) -> None:
    """The root of the story is the folder above the new one."""
    watch("open").follow(
        ("mkdir", "new"), ("fsync", r"\."), ("rename", f"new/{ANY_SCRATCH}", "new/pending/.*")
    )


def test_the_first_push_syncs_the_areas_into_the_folder(watch) -> None:
    watch("open").follow(
        ("mkdir", "new/pending"), ("fsync", "new"), ("rename", f"new/{ANY_SCRATCH}", ".*/first")
    )


def test_an_area_that_was_missing_is_synced_into_a_folder_that_was_there(watch) -> None:
    """The boot was counted before: nothing else syncs the folder."""

    def leave_one_out(root: Path) -> None:
        assert FileQueue(root / "new").core
        (root / "new" / "pending").rmdir()

    watch("open", leave_one_out).follow(
        ("mkdir", "new/pending"), ("fsync", "new"), ("rename", f"new/{ANY_SCRATCH}", ".*/first")
    )


def test_the_boot_count_is_synced_before_and_after_it_is_renamed(watch) -> None:
    watch("open").follow(
        ("write", "new/tmp/boot.json"),
        ("fsync", "new/tmp/boot.json"),
        ("rename", "new/tmp/boot.json", "new/boot.json"),
        ("fsync", "new"),
    )


def test_push_many_syncs_once_before_the_first_rename_and_once_after_the_last(watch) -> None:
    story = watch("push_many")
    story.follow(
        *[("write", f"{ANY_SCRATCH}/task.json")] * 5,
        ("syncfs", r"\."),
        *[("rename", ANY_SCRATCH, f"pending/../many-{number}") for number in range(5)],
        ("syncfs", r"\."),
    )
    names = [step.name for step in story.steps if step.name in ("write", "rename", "syncfs")]
    assert names == ["write"] * 5 + ["syncfs"] + ["rename"] * 5 + ["syncfs"]
    assert "fsync" not in {step.name for step in story.steps}


def test_a_nack_syncs_the_history_before_it_is_renamed_in_and_the_lease_goes_last(watch) -> None:
    watch("nack").follow(
        ("write", ANY_SCRATCH),
        ("fsync", ANY_SCRATCH),
        ("rename", ANY_SCRATCH, f"{TARGET}/target/task.json"),
        ("unlink", f"{TARGET}/target/lease.json"),
    )


def test_a_last_nack_syncs_the_history_before_the_task_moves_to_failed(watch) -> None:
    watch("nack_last").follow(
        ("fsync", ANY_SCRATCH),
        ("rename", ANY_SCRATCH, f"{TARGET}/target/task.json"),
        ("rename", f"{TARGET}/target", "failed/34/target"),
    )


def test_a_requeue_syncs_the_task_and_after_the_rename_the_shard(watch) -> None:
    watch("requeue").follow(
        ("write", ANY_SCRATCH),
        ("fsync", ANY_SCRATCH),
        ("rename", ANY_SCRATCH, "failed/34/target/task.json"),
        ("unlink", "failed/34/target/lease.json"),
        ("fsync", "pending"),
        ("rename", "failed/34/target", f"{TARGET}/target"),
        ("fsync", TARGET),
    )


def test_a_state_is_synced_before_it_replaces_the_one_before(watch) -> None:
    watch("save_state").follow(
        ("write", ANY_SCRATCH),
        ("fsync", ANY_SCRATCH),
        ("rename", ANY_SCRATCH, f"{TARGET}/target/state.json"),
    )


def test_a_pause_is_synced_before_and_after_its_rename(watch) -> None:
    watch("pause").follow(
        ("write", ANY_SCRATCH),
        ("fsync", ANY_SCRATCH),
        ("rename", ANY_SCRATCH, "paused"),
        ("fsync", r"\."),
    )


def test_an_ack_syncs_nothing(watch) -> None:
    """Losing one only delivers again; the cost of a sync would be paid by every task."""
    names = {step.name for step in watch("ack").steps}
    assert "rename" in names
    assert not names & {"fsync", "syncfs"}


def test_a_finished_task_is_synced_into_the_archive_before_its_directory_goes(watch) -> None:
    watch("archive").follow(
        ("mkdir", "completed/archive"),
        ("write", r"completed/archive/.*\.usv"),
        ("fsync", r"completed/archive/.*\.usv"),
        ("fsync", "completed/archive"),
        ("fsync", "completed"),
        ("rename", "completed/../done", ANY_SCRATCH),
    )


def test_after_a_sync_that_failed_the_file_is_written_anew_and_never_asked_again(
    folder: Path, template, child, strace
) -> None:
    """The kernel drops the pages of a failed sync: a second one would say that all is well."""
    root = template("push")
    command = child("one_verb.py", root, "push")
    plain = strace.run(command)
    (number,) = {
        call.ordinal
        for call in plain.verb("fsync")
        if re.search(r"/tmp/[^/]+/task\.json>", call.text)
    }
    again = template("again")
    traced = strace.run(
        child("one_verb.py", again, "push"), inject=f"fsync:error=EIO:when={number}"
    )
    (failed,) = [call for call in traced.calls if call.injected]
    path = re.search(r"<(.*?)>", failed.text).group(1)
    later = traced.calls[traced.calls.index(failed) + 1 :]
    touched = [call for call in later if call.name != "fcntl" and path in call.text]
    assert [call.name for call in touched] == ["unlinkat"] or not touched
    scratch = Path(path).parent.name
    assert not [c for c in later if c.name.startswith("rename") and scratch in c.text]
    assert '"ok": true' in traced.stdout.splitlines()[-1]
