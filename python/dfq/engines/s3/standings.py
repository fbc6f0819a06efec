"""How tasks under ``pending/`` stand, read from their two objects."""

from __future__ import annotations

from dfq.engines.s3.applying import Standing, standing
from dfq.engines.s3.bodies import Damaged, LeftAlone, TaskFile
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.keys import home
from dfq.engines.s3.vacancy import is_mark
from dfq.engines.s3.view import Sighting
from dfq.errors import WrongState


class NotForUs(WrongState):
    """The task is there, but only another dfq knows what to do with it."""


class Standings:
    """Reads them."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def now(self, task_id: str, place: str | None = None) -> Standing:
        """How a task stands that is (or was) under ``pending/``; raises WrongState if damaged."""
        place = place or home(task_id)
        lease = self._bucket.read_lease(task_id, place)
        task = self._task(task_id, place)
        if lease is None and task is not None:
            # Between the two reads it may have been taken, and more. What a lease is compared
            # with was read after it: an older task would count too few deliveries.
            lease = self._bucket.read_lease(task_id, place)
            if lease is not None:
                task = self._task(task_id, place)
        return standing(task, lease)

    def listed(self, sighting: Sighting) -> Standing:
        """How it stood when it was listed: what was not there then is not read.

        If what was there changed since, it is read as it is now.
        """
        task_id, place = sighting.task_id, sighting.place
        if sighting.lease is None and sighting.task is not None:
            task = self._task(task_id, place)
            if task is not None and task.etag == sighting.task.etag:
                return standing(task, None)
        elif sighting.lease is not None and is_without_task(sighting):
            lease = self._bucket.read_lease(task_id, place)
            if lease is not None and lease.etag == sighting.lease.etag:
                return standing(None, lease)
        return self.now(task_id, place)

    def _task(self, task_id: str, place: str) -> TaskFile | None:
        try:
            return self._bucket.read_task(task_id, place)
        except Damaged as error:
            raise WrongState(f"task {task_id!r} is damaged: {error}") from None
        except LeftAlone as error:
            raise NotForUs(f"task {task_id!r} is left alone: {error}") from None


def is_without_task(sighting: Sighting) -> bool:
    """Whether a listing showed no task there, or the mark of an empty key."""
    return sighting.task is None or is_mark(sighting.task)
