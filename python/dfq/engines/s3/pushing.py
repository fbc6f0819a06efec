"""Storing tasks: an id is there once, whatever has become of its task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dfq.engines.base import circle
from dfq.engines.s3.bodies import NORMAL, Damaged, LeaseFile, LeftAlone, new_task_body
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.finished import Finished
from dfq.engines.s3.keys import failed_key, home, lane_key, task_key
from dfq.engines.s3.looking import Looking
from dfq.errors import DependencyCycle, StoreUnsure
from dfq.record import Pushed
from dfq.task import NewTask

#: From so many given ids on, the failed ones are listed instead of asked for one by one.
_LIST_FROM = 20


class Pushing:
    """The pushes of one handle."""

    def __init__(self, bucket: Bucket, looking: Looking, finished: Finished) -> None:
        self._bucket = bucket
        self._looking = looking
        self._finished = finished

    def push(self, tasks: list[NewTask]) -> list[Pushed]:
        """Store these, several at once; one answer each, in order."""
        fresh: dict[str, NewTask] = {}
        for new in tasks:
            fresh.setdefault(new.id, new)
        # Given ids are dated before they are looked up: see LATE_SECONDS.
        begun = self._bucket.clock.wall()
        known = self._finished_before([new.id for new in fresh.values() if new.id_given])
        self._refuse_cycles([new for new in fresh.values() if new.id not in known])
        wanted = [new for new in fresh.values() if new.id not in known]
        created = {
            new.id: state
            for new, state in zip(
                wanted, self._bucket.map(lambda one: self._store(one, begun), wanted), strict=True
            )
        }
        answers = []
        for new in tasks:
            state = known.get(new.id) or created.get(new.id)
            first = fresh.pop(new.id, None) is not None
            if state is None and first:
                answers.append(Pushed(new.id, created=True))
            else:
                answers.append(Pushed(new.id, created=False, state=state or self._state(new.id)))
        return answers

    def _finished_before(self, ids: list[str]) -> dict[str, str]:
        """Which of these ids are finished, and how: what a new task.json would not meet."""
        if not ids:
            return {}
        # First where the end of a task is kept at first, then where it goes from there.
        leases = self._bucket.map(lambda one: self._bucket.read_lease(one, home(one)), ids)
        ended = {lease.task_id for lease in leases if lease is not None and _is_end(lease)}
        known = dict.fromkeys(ended | self._finished.known(ids), "completed")
        if len(ids) >= _LIST_FROM:
            failed = self._looking.failed_ids()
            known |= {task_id: "failed" for task_id in ids if task_id in failed}
        else:
            for task_id in ids:
                if task_id not in known and self._bucket.has(failed_key(task_id)):
                    known[task_id] = "failed"
        # A requeue that was cut short left both; then the task is pending.
        states = {task_id: self._state(task_id) for task_id in known}
        # Nothing is left of what was purged.
        return {task_id: state for task_id, state in states.items() if state != "unknown"}

    def _store(self, new: NewTask, begun: float) -> str | None:
        """Store one task; the state of what was there already, or None."""
        bucket = self._bucket
        place = home(new.id)
        if new.priority != NORMAL:
            bucket.store.put(lane_key(new.priority, new.id), b"")
        # Many tasks take their time on a slow link, and an id that dfq made is nobody else's.
        written_at = begun if new.id_given else bucket.clock.wall()
        body = new_task_body(new, bucket.writes.nonce(), written_at)
        written = bucket.occupy(task_key(place), body)
        if written.end == "lost":
            return self._state(new.id)
        if written.end == "vanished":
            raise StoreUnsure(
                f"task {new.id!r} may or may not be stored: {bucket.store.url} did not answer, "
                "and something else is there now; look with `dfq get`"
            )
        if new.id_given:
            return self._undo_if_finished(new, written.etag)
        return None

    def _undo_if_finished(self, new: NewTask, etag: str) -> str | None:
        """The task of this id may have been finished between our look and our write."""
        lease = self._bucket.read_lease(new.id, home(new.id))
        if lease is None or not _is_end(lease):
            return None
        if etag in (lease.fields.get("first_etag"), lease.fields.get("task_etag")):
            # It is the end of what we wrote: somebody was that quick.
            return None
        remove = self._bucket.erase if lease.state == "completed" else self._bucket.vacate
        remove(task_key(home(new.id)), etag)
        return lease.state

    def _state(self, task_id: str) -> str:
        record = self._looking.get(task_id)
        return "unknown" if record is None else record.state

    def _refuse_cycles(self, tasks: Iterable[NewTask]) -> None:
        """Raise DependencyCycle if storing these would make a task wait for itself."""
        new = {task.id: task.depends_on for task in tasks}
        stored: dict[str, tuple[str, ...]] = {}
        for start in [task_id for task_id, depends_on in new.items() if depends_on]:
            path = self._path_back(start, new, stored)
            if path is not None:
                # What is there already won't be stored, so it closes no circle.
                for task_id in [task_id for task_id in new if self._is_there(task_id)]:
                    del new[task_id]
                path = self._path_back(start, new, stored) if start in new else None
            if path is not None:
                raise DependencyCycle(path)

    def _is_there(self, task_id: str) -> bool:
        return self._bucket.has(task_key(home(task_id)))

    def _path_back(
        self,
        start: str,
        new: Mapping[str, tuple[str, ...]],
        stored: dict[str, tuple[str, ...]],
    ) -> str | None:
        came_from: dict[str, str] = {}
        remaining = [start]
        while remaining:
            task_id = remaining.pop()
            if task_id not in new and task_id not in stored:
                stored[task_id] = self._unmet_of(task_id)
            for dependency in new.get(task_id, stored.get(task_id, ())):
                if dependency == start:
                    return circle(start, task_id, came_from)
                if dependency not in came_from:
                    came_from[dependency] = task_id
                    remaining.append(dependency)
        return None

    def _unmet_of(self, task_id: str) -> tuple[str, ...]:
        """What a task that is there still waits for; a failed one may be requeued."""
        try:
            task = self._bucket.read_task(task_id, home(task_id))
        except (Damaged, LeftAlone):
            return ()
        if task is None:
            failed = self._looking.failed(task_id)
            task = None if failed is None else failed.task
        if task is None:
            return ()
        return tuple(d for d in task.checked.depends_on if not self._looking.is_completed(d))


def _is_end(lease: LeaseFile) -> bool:
    return lease.state in ("completed", "failed")
