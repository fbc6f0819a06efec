"""A process is killed, or its disk fails, at every system call of a verb in turn."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

VERBS = (
    *("open", "push", "push_many", "claim", "claim_too_early", "ack", "nack", "nack_last"),
    *("heartbeat", "bury", "cancel", "requeue"),
)
FAULTS = {"killed": "signal=SIGKILL", "EIO": "error=EIO", "ENOSPC": "error=ENOSPC"}


@dataclass(frozen=True)
class Fault:
    call: str
    ordinal: int
    text: str


#: These change nothing: to be killed there is as good as at the next call, and they need no space.
LOOKING = ("newfstatat", "fstat", "read", "getdents64")


def faults_of(traced, root: Path, kind: str) -> list[Fault]:
    """The calls of the verb below the root; of those that find nothing, only the first."""
    found = []
    misses = set()
    for call in traced.verb():
        if str(root) not in call.text or (call.name in LOOKING and kind != "EIO"):
            continue
        if call.name == "fcntl" and "F_SETLK" not in call.text:
            continue
        if "ENOENT" in call.text:
            if call.name in misses:
                continue
            misses.add(call.name)
        found.append(Fault(call.name, call.ordinal, call.text))
    return found


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_lost_or_torn_when_any_call_of_a_verb_is_the_last_or_fails(
    verb: str, kind: str, folder: Path, template: Callable[[str], Path], child, strace
) -> None:
    ready = template(verb)
    bystanders = {
        str(path.relative_to(ready)): path.read_text()
        for task_id in ("bystander", "done", "sad")
        for path in ready.glob(f"*/??/{task_id}/*.json")
    }

    def run(number: int, inject: str | None = None) -> tuple[Path, object]:
        root = folder / f"run-{number:04}"
        shutil.copytree(ready, root)
        return root, strace.run(child("one_verb.py", root, verb), inject=inject)

    root, plain = run(0)
    assert plain.returncode == 0, plain.stdout + plain.stderr
    faults = faults_of(plain, root, kind)
    assert faults, "the verb made no call below the queue's folder"

    def strike(numbered: tuple[int, Fault]) -> tuple[Path, object]:
        number, fault = numbered
        return run(number, f"{fault.call}:{FAULTS[kind]}:when={fault.ordinal}")

    with ThreadPoolExecutor(2) as pool:
        struck = list(pool.map(strike, enumerate(faults, 1)))
    complaints: list[tuple[Fault, list[str]]] = []
    cases = []
    for fault, (root, traced) in zip(faults, struck, strict=True):
        wrong, case = judge(verb, kind, fault, traced)
        complaints.append((fault, wrong))
        cases.append({"root": str(root), "verb": verb, "bystanders": bystanders, **case})
        if verb == "open":
            cases[-1]["bystanders"] = {}
    checked = subprocess.run(
        child("check_folders.py"),
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stderr
    bad = [
        f"{kind} at {fault.call} {fault.ordinal}, {fault.text}\n    {[*wrong, *more]}"
        for (fault, wrong), more in zip(complaints, json.loads(checked.stdout), strict=True)
        if wrong or more
    ]
    assert not bad, "\n".join(bad)


def judge(verb: str, kind: str, fault: Fault, traced) -> tuple[list[str], dict[str, object]]:
    """What the process itself said: was it struck in the verb, and was it clear about it?"""
    lines = [json.loads(line) for line in traced.stdout.splitlines()]
    case = {"fence": lines[0].get("fence", 0) if lines else 0, "done": False}
    if kind == "killed":
        # Nothing after the marks ran, so the verb was never said to be done.
        struck = traced.returncode == -9 or traced.returncode == 137
        in_verb = len(lines) == 1
        return (
            [] if struck and in_verb else [f"not killed in the verb: {traced.returncode}, {lines}"]
        ), case
    wrong = []
    if not any(call.injected and call.in_verb for call in traced.calls):
        wrong.append("the fault did not strike in the verb")
    if traced.returncode != 0 or traced.stderr:
        wrong.append(f"it ended with {traced.returncode}: {traced.stdout} {traced.stderr}")
        return wrong, case
    _, first, *more = lines
    case["done"] = first["ok"]
    if first["ok"]:
        return wrong, case
    expected = {"EIO": "QueueUnavailable", "ENOSPC": "DiskFull"}[kind]
    # A full disk does not keep anybody from reading; what it is called then is no matter.
    unreal = kind == "ENOSPC" and "O_RDONLY" in fault.text
    if first["error"] != expected and not unreal:
        wrong.append(f"{first['error']} instead of {expected}: {first['message']}")
    stands, second = more
    told = "may have been" in first["message"]
    wrong += effects(verb, stands) if not told else []
    # Trying again is what anybody would do; the second time the disk is well.
    if not second["ok"] and not (told and second["error"] in ALREADY.get(verb, ())):
        wrong.append(f"tried again: {second['error']}: {second['message']} (first: {first})")
    case["done"] = True
    return wrong, case


#: How a verb says at the second try that the first one worked after all.
ALREADY = {
    "open": ("DuplicateTask",),
    "push": ("DuplicateTask",),
    "ack": ("AlreadyCompleted",),
    "nack": ("LeaseNotHeld",),
    "nack_last": ("LeaseNotHeld",),
    "bury": ("LeaseNotHeld",),
    "cancel": ("WrongState",),
    "requeue": ("WrongState",),
}
#: How the target stands when a verb that failed changed nothing, as it promises.
UNCHANGED = {
    **dict.fromkeys(("open", "push", "push_many", "claim", "cancel"), "ready"),
    "claim_too_early": "delayed",
    "requeue": "failed",
}


def effects(verb: str, stands: dict[str, str]) -> list[str]:
    wrong = []
    if new := set(stands) - {"target"}:
        wrong.append(f"the push failed without a word, but stored {sorted(new)}")
    expected = UNCHANGED.get(verb, "leased")
    if stands.get("target") != expected:
        wrong.append(f"the verb failed, but its target is {stands.get('target')}")
    return wrong
