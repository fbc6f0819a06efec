"""What `dfq doctor` says about the tasks of a queue, whatever engine it is on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dfq.record import Finding

if TYPE_CHECKING:
    from dfq.queue import Queue

#: So many stuck or damaged things are named one by one.
NAMED: Final = 10


def task_findings(queue: Queue) -> list[Finding]:
    """A pause, failed tasks, and tasks that will not move without help."""
    stats = queue.stats()
    findings = []
    if stats.paused:
        findings.append(Finding("warning", queue.url, "the queue is paused", "dfq resume"))
    if stats.failed:
        advice = "dfq ls --state failed; dfq requeue brings one back"
        findings.append(Finding("ok", queue.url, f"failed tasks: {stats.failed}", advice))
    if stats.stuck:
        for record in queue.list("blocked", limit=NAMED):
            for dependency, state in record.blocked_by.items():
                if state != "pending":
                    advice = f"Requeue or push {dependency}, or cancel this one."
                    message = f"waits for {dependency}, which is {state}"
                    findings.append(Finding("warning", record.task.id, message, advice))
    return findings
