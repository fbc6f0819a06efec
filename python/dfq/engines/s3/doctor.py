"""What `dfq doctor` looks at in a bucket: the store itself, and the queue in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dfq.engines.findings import NAMED, task_findings
from dfq.engines.s3.bodies import loads
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.finished import Finished
from dfq.engines.s3.keys import QUARANTINE
from dfq.engines.s3.looking import Looking
from dfq.engines.s3.quarantine import set_aside_keys
from dfq.errors import WrongState
from dfq.record import Finding
from dfq.stores.certify import certify

if TYPE_CHECKING:
    from dfq.queue import Queue

#: S3 refuses requests whose date is 15 minutes off; before that, a word is in order.
_SKEW_SECONDS: Final = 60.0


def examine(queue: Queue, bucket: Bucket, looking: Looking, finished: Finished) -> list[Finding]:
    """Put the store to the test, then look at the tasks."""
    findings = [*_store(bucket), *_skew(bucket), *task_findings(queue)]
    census = looking.census()
    for task_id, damage in list(census.damaged.items())[:NAMED]:
        advice = "The next sweep sets it aside; what it holds is kept."
        findings.append(Finding("warning", task_id, damage, advice))
    for task_id, why in list(census.left_alone.items())[:NAMED]:
        findings.append(Finding("warning", task_id, why))
    for key in census.foreign[:NAMED]:
        message = "is no part of a task: it is left alone"
        findings.append(Finding("warning", key, message, "Delete it, or keep it elsewhere."))
    for task_id, stands in census.standings.items():
        if stands.lease is not None and stands.lease.too_new:
            message = "is held under a lease of a newer dfq, which this one leaves alone"
            findings.append(Finding("warning", task_id, message, "Upgrade dfq here."))
    findings += _records(looking, finished)
    findings += _quarantine(bucket)
    if all(finding.level == "ok" for finding in findings):
        findings.append(Finding("ok", bucket.store.url, "nothing is wrong"))
    return findings


def _store(bucket: Bucket) -> list[Finding]:
    verdict = certify(bucket.store, chance=bucket.chance, clock=bucket.clock)
    where = bucket.store.url
    if not verdict.ok:
        advice = "Use a store with conditional writes: workers would run tasks twice on this one."
        return [Finding("error", where, problem, advice) for problem in verdict.problems]
    races = ", ".join(f"{kind} {count}" for kind, count in verdict.rounds.items())
    findings = [Finding("ok", where, f"one writer won every race ({races})")]
    return findings + [Finding("ok", where, note) for note in verdict.notes]


def _skew(bucket: Bucket) -> list[Finding]:
    skew = bucket.own_clock.wall() - bucket.clock.wall()
    if abs(skew) < _SKEW_SECONDS:
        return []
    message = f"this machine's clock is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'}"
    advice = "Leases are not affected; set the clock for the sake of logs and signatures."
    return [Finding("ok", bucket.store.url, f"{message} the store's", advice)]


def _records(looking: Looking, finished: Finished) -> list[Finding]:
    """Records of finished tasks that can't be read any more."""
    damaged = {}
    for task_id, key in looking.failed_ids().items():
        try:
            looking.failed(task_id)
        except WrongState as error:
            damaged[key] = str(error)
    for key, count in finished.damaged().items():
        damaged[key] = f"{count} records of completed tasks are damaged"
    advice = "Mend it from a copy, or delete it; nothing else depends on it."
    return [Finding("warning", key, what, advice) for key, what in list(damaged.items())[:NAMED]]


def _quarantine(bucket: Bucket) -> list[Finding]:
    findings = []
    advice = f"Mend it and push it again, or delete it from {QUARANTINE}."
    keys = set_aside_keys(bucket)
    for key in keys[:NAMED]:
        found = bucket.read_odd(key)
        reason = "unreadable"
        if found is not None:
            try:
                reason = str(loads(found.body, key).get("reason", reason))
            except ValueError:
                reason = "unreadable"
        findings.append(Finding("warning", key, f"set aside: {reason}", advice))
    if len(keys) > NAMED:
        more = f"{len(keys) - NAMED} more things are set aside"
        findings.append(Finding("warning", QUARANTINE, more))
    return findings
