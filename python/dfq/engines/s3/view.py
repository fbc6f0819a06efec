"""What a handle has seen of the queue: which tasks wait, in which order to try them.

One listing from ``lanes`` on shows the tasks of unusual priority, whether the queue is paused, and
the first tasks with their leases. While that is all there is, nothing more is asked. A queue that
is larger is read a page at a time, from a random place on and around: workers spread out, and the
last page is reached like the first. What was seen is remembered, and costs nothing to try.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from dfq.engines.s3.bodies import NORMAL, LeaseFile, LeftAlone, TaskFile
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.keys import FRONT, LANES, PAUSED, PENDING, home, read_lane, read_pending
from dfq.store import MAX_PAGE, Page, Stored

T = TypeVar("T")

#: Once a queue is known to be large, so much of its front is enough to see lanes and a pause.
_FRONT_LIMIT: Final = 200
#: No key under ``pending/`` is greater.
_BEYOND: Final = PENDING[:-1] + "0"
#: The tasks and leases that were read are remembered, so many of each.
_REMEMBERED: Final = 10_000


@dataclass
class Sighting:
    """A task as the last listing showed it."""

    task_id: str
    place: str
    priority: int = NORMAL
    task: Stored | None = None
    lease: Stored | None = None
    #: What stands in the place of the next lease, where leases can't be deleted.
    free: LeaseFile | None = None


@dataclass
class _Found:
    """What a listing showed."""

    sightings: dict[str, Sighting] = field(default_factory=dict)
    lanes: dict[str, int] = field(default_factory=dict)
    paused: bool = False
    #: The versions of leases without a task: mostly records of what was completed lately.
    ended: dict[str, str] = field(default_factory=dict)


class View:
    """What was seen, and what of it is still to be tried. Safe from threads."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.RLock()
        self._seen: dict[str, Sighting] = {}
        self._untried: list[Sighting] = []
        self._lanes: dict[str, int] = {}
        self._tasks: OrderedDict[str, TaskFile] = OrderedDict()
        self._leases: OrderedDict[str, LeaseFile] = OrderedDict()
        # task_id -> the version of its task.json that is not for us
        self._left_alone: OrderedDict[str, Stored] = OrderedDict()
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._large = False
        # The pages of a large queue that are still to be seen.
        self._round: Iterator[Page] | None = None
        self.paused = False
        #: When the front was last looked at, on our own clock; None: never, or not any more.
        self.looked_at: float | None = None
        #: Stands for all that the last look saw; None: that was not the whole queue.
        self.mark: int | None = None

    # Looking

    def look(self) -> None:
        """See the front anew, and with it all of a small queue; else a page of a large one."""
        with self._lock:
            page = self._bucket.store.list("", FRONT, _FRONT_LIMIT if self._large else MAX_PAGE)
            self.looked_at = self._bucket.clock.boot()
            found = _read(page)
            self._lanes, self.paused = found.lanes, found.paused
            if page.next is not None and page.next < PAUSED:
                # The page did not come so far.
                self.paused = self._bucket.has(PAUSED)
                if page.next.startswith(LANES):
                    self._rest_of_lanes(page.next)
            self._large = page.next is not None and page.next < _BEYOND
            self.mark = None if self._large else _mark_of(page)
            if not self._large:
                self._round = None
                self._ended.clear()
                self._show(found)
            elif self._round is None:
                self._round = self._pages()
                self.look_on()
            else:
                self._show_lanes()

    def look_on(self) -> bool:
        """See the next page of a large queue; False if all was seen since the round began."""
        with self._lock:
            page = None if self._round is None else next(self._round, None)
            if page is None:
                self._round = None
                return False
            self._show(_read(page))
            return True

    def look_elsewhere(self) -> None:
        """Somebody works here too: see what is left, in another place of a large queue."""
        with self._lock:
            if self._large:
                self._round = self._pages()
                self.look_on()
            else:
                self.look()

    def _pages(self) -> Iterator[Page]:
        """All pages of what is pending: from a random shard to the end, then from the start."""
        # Behind all of that shard, before the next: and no folder's name (see FRONT).
        start = f"{PENDING}{self._bucket.chance.bits(8):02x}~"
        for after, until in ((start, _BEYOND), ("", start)):
            while True:
                page = self._bucket.store.list(PENDING, after, MAX_PAGE)
                yield page
                if page.next is None or page.next >= until:
                    break
                after = _whole(page)

    def _rest_of_lanes(self, after: str) -> None:
        page: Page
        while True:
            page = self._bucket.store.list(LANES, after, MAX_PAGE)
            self._lanes.update(_read(page).lanes)
            if page.next is None:
                return
            after = page.next

    def _show(self, found: _Found) -> None:
        self._seen = found.sightings
        for task_id, etag in found.ended.items():
            _keep(self._ended, task_id, etag)
        for task_id, priority in self._lanes.items():
            if task_id in self._seen:
                self._seen[task_id].priority = priority
        if self._large:
            self._add_lanes()
        self._order(self._seen.values())

    def _show_lanes(self) -> None:
        """Keep what is left of the page, with the lanes as they are now."""
        self._add_lanes()
        self._order([one for one in self._untried if one.task_id in self._seen], self._lanes)

    def _add_lanes(self) -> None:
        # The tasks in lanes may stand on any page: they are tried wherever they are.
        for task_id, priority in self._lanes.items():
            if task_id not in self._seen:
                self._seen[task_id] = Sighting(task_id, home(task_id), priority)

    def _order(self, sightings: Iterable[Sighting], more: Iterable[str] = ()) -> None:
        """By priority; within one as the keys stand, from a random place on and around."""
        chosen = {one.task_id: one for one in sightings if one.lease is None}
        for task_id in more:
            chosen.setdefault(task_id, self._seen[task_id])
        ordered = sorted(chosen.values(), key=lambda one: one.place)
        turn = int(self._bucket.chance.uniform(0, len(ordered) or 1))
        ordered = ordered[turn:] + ordered[:turn]
        # The last is tried first.
        self._untried = sorted(ordered, key=lambda one: one.priority)

    # Trying

    def draw(self) -> Iterator[Sighting]:
        """Tasks to try, the best first; each is given to one thread only."""
        while True:
            with self._lock:
                if not self._untried:
                    return
                sighting = self._untried.pop()
            yield sighting

    def put_back(self, sightings: Iterable[Sighting]) -> None:
        """These were drawn, but not tried: others may want them."""
        with self._lock:
            there = [one for one in sightings if self._seen.get(one.task_id) is one]
            self._untried += reversed(there)
            self._untried.sort(key=lambda one: one.priority)

    def offer(self, sighting: Sighting) -> None:
        """A task that was held is nobody's now."""
        with self._lock:
            sighting.lease = None
            self._untried.append(sighting)
            self._untried.sort(key=lambda one: one.priority)

    def forget(self, task_id: str) -> None:
        """A task is held or gone: there is nothing to try until it is seen again."""
        with self._lock:
            self._seen.pop(task_id, None)

    def leased(self) -> list[Sighting]:
        """The tasks of the page that somebody holds, or has ended."""
        with self._lock:
            return [one for one in self._seen.values() if one.lease is not None]

    def waits(self, task_id: str) -> bool:
        """Whether a task was seen to be pending at the last look."""
        with self._lock:
            seen = self._seen.get(task_id)
            return seen is not None and seen.task is not None

    def ended(self, task_id: str) -> str | None:
        """The version of a lease that was seen without its task: it may have been completed."""
        with self._lock:
            return self._ended.get(task_id)

    @property
    def is_whole(self) -> bool:
        """Whether the last look saw all that is pending."""
        return self.mark is not None

    def age(self) -> float:
        """Seconds since the last look."""
        with self._lock:
            if self.looked_at is None:
                return float("inf")
            return self._bucket.clock.boot() - self.looked_at

    def expire(self) -> None:
        """Something happened: what was seen is no longer good enough."""
        with self._lock:
            self.looked_at = None

    # Remembering

    def read(self, sighting: Sighting) -> TaskFile | None:
        """The task; None if it is gone or not for us. Raises Damaged."""
        try:
            task = self._bucket.read_task(sighting.task_id, sighting.place)
        except LeftAlone:
            self.leave_alone(sighting)
            return None
        if task is not None:
            with self._lock:
                _keep(self._tasks, task.task_id, _envelope(task))
        return task

    def leave_alone(self, sighting: Sighting) -> None:
        """Remember this version of a task as none of ours, so as not to try it at every look."""
        with self._lock:
            self.forget(sighting.task_id)
            if sighting.task is not None:
                _keep(self._left_alone, sighting.task_id, sighting.task)

    def is_left_alone(self, sighting: Sighting) -> bool:
        """Whether this version of a task is known as none of ours."""
        with self._lock:
            known = self._left_alone.get(sighting.task_id)
            return sighting.task is not None and known == sighting.task

    def remembered(self, sighting: Sighting) -> TaskFile | None:
        """The envelope of a task that was read, if it has not changed since."""
        with self._lock:
            task = self._tasks.get(sighting.task_id)
            if task is None or (sighting.task is not None and task.etag != sighting.task.etag):
                return None
            return task

    def lease_of(self, sighting: Sighting) -> LeaseFile | None:
        """The lease of a sighting, read once for each of its versions."""
        assert sighting.lease is not None
        with self._lock:
            known = self._leases.get(sighting.task_id)
        if known is not None and known.etag == sighting.lease.etag:
            return known
        lease = self._bucket.read_lease(sighting.task_id, sighting.place)
        if lease is not None:
            with self._lock:
                _keep(self._leases, sighting.task_id, lease)
        return lease


def _keep(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > _REMEMBERED:
        kept.popitem(last=False)


def _mark_of(page: Page) -> int:
    # Behind what is pending stand the beats, which change all the time.
    return hash(tuple(one for one in page.entries if one.key < _BEYOND))


def _envelope(task: TaskFile) -> TaskFile:
    """What is worth remembering of a task: what it carries may be large."""
    fields = {k: v for k, v in task.fields.items() if k not in ("payload", "saved", "errors")}
    return replace(task, fields=fields)


def _whole(page: Page) -> str:
    """Where to go on, so that a task whose objects are parted by the page's end is seen whole."""
    last = read_pending(page.entries[-1].key)
    parted = last is not None and last.is_lease and len(page.entries) > 1
    return page.entries[-2 if parted else -1].key


def _read(page: Page) -> _Found:
    found = _Found()
    for stored in page.entries:
        if stored.key == PAUSED:
            found.paused = True
        elif stored.key.startswith(LANES):
            lane = read_lane(stored.key)
            if lane is not None:
                found.lanes[lane[1]] = lane[0]
        else:
            add_sighting(found.sightings, stored)
    # A lease without a task is a record to be folded, or a leftover: the sweep looks at those.
    found.ended = {
        i: one.lease.etag for i, one in found.sightings.items() if one.task is None and one.lease
    }
    found.sightings = {i: one for i, one in found.sightings.items() if one.task is not None}
    return found


def add_sighting(sightings: dict[str, Sighting], stored: Stored) -> bool:
    """Add what an object under ``pending/`` shows; False if it is none of ours."""
    key = read_pending(stored.key)
    if key is None:
        return False
    sighting = sightings.get(key.task_id)
    if sighting is None:
        sighting = sightings[key.task_id] = Sighting(key.task_id, key.place)
    if sighting.place != key.place:
        # The same id in two places: one after the other.
        return False
    if key.is_lease:
        sighting.lease = stored
    else:
        sighting.task = stored
    return True


def batches(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Lists of so many items, the last one shorter."""
    while batch := list(itertools.islice(items, size)):
        yield batch
