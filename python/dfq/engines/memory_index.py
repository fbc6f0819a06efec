"""How the memory engine finds the next task without looking at all of them."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from dfq.ambient import Chance
from dfq.record import EVERYTHING, Filter
from dfq.task import Task


class Bag:
    """Ids in no order: add, remove and draw one by chance, each in constant time."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._places

    def add(self, task_id: str) -> None:
        """Put ``task_id`` in; it must not be in already."""
        self._places[task_id] = len(self._ids)
        self._ids.append(task_id)

    def remove(self, task_id: str) -> None:
        """Take ``task_id`` out; the last one moves to its place."""
        place = self._places.pop(task_id)
        last = self._ids.pop()
        if last != task_id:
            self._ids[place] = last
            self._places[last] = place

    def any(self, chance: Chance) -> str:
        """One of them, by chance. It stays in."""
        # uniform() may return its upper bound by rounding.
        return self._ids[min(int(chance.uniform(0, len(self._ids))), len(self._ids) - 1)]


@dataclass
class _Group:
    """Ready tasks that every filter treats alike."""

    example: Task
    bag: Bag = field(default_factory=Bag)


@dataclass
class _Level:
    """The ready tasks of one priority: all of them, and the same ones by group."""

    bag: Bag = field(default_factory=Bag)
    groups: dict[object, _Group] = field(default_factory=dict)


class ReadyIndex:
    """The ready tasks: highest priority first, by chance within a priority.

    A filter asks about the groups of a priority, never about single tasks, so that a claim
    costs the same however many wait.
    """

    def __init__(self) -> None:
        self._levels: dict[int, _Level] = {}
        self._priorities: list[int] = []

    def add(self, task: Task) -> None:
        """``task`` may be claimed from now on."""
        level = self._levels.get(task.priority)
        if level is None:
            level = self._levels[task.priority] = _Level()
            bisect.insort(self._priorities, task.priority)
        if task.id not in level.bag:
            level.bag.add(task.id)
            level.groups.setdefault(_group_key(task), _Group(task)).bag.add(task.id)

    def discard(self, task: Task) -> None:
        """``task`` is no longer ready, if it was."""
        level = self._levels.get(task.priority)
        if level is None or task.id not in level.bag:
            return
        level.bag.remove(task.id)
        key = _group_key(task)
        group = level.groups[key]
        group.bag.remove(task.id)
        if not group.bag:
            del level.groups[key]
        if not level.bag:
            del self._levels[task.priority]
            self._priorities.remove(task.priority)

    def choose(self, filter: Filter, chance: Chance) -> str | None:
        """The id of a task to claim next. It stays in."""
        for priority in reversed(self._priorities):
            if filter.max_priority is not None and priority > filter.max_priority:
                continue
            if filter.min_priority is not None and priority < filter.min_priority:
                return None
            bag = self._matching(self._levels[priority], filter, chance)
            if bag is not None:
                return bag.any(chance)
        return None

    def _matching(self, level: _Level, filter: Filter, chance: Chance) -> Bag | None:
        if filter == EVERYTHING:
            return level.bag
        bags = [group.bag for group in level.groups.values() if filter.matches(group.example)]
        if not bags:
            return None
        # A group's chance is its share of the tasks, so that every task has the same.
        mark = chance.uniform(0, sum(len(bag) for bag in bags))
        for bag in bags:
            mark -= len(bag)
            if mark < 0:
                return bag
        return bags[-1]


def _group_key(task: Task) -> object:
    return task.project, task.name, task.labels


class Timetable:
    """Which ids are due when: set, forget, and take those that are due."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, task_id: str, when: float) -> None:
        """``task_id`` is due at ``when``, whatever was set before."""
        self._times[task_id] = when
        heapq.heappush(self._heap, (when, task_id))
        self._compact()

    def forget(self, task_id: str) -> None:
        """``task_id`` is not due at any time."""
        self._times.pop(task_id, None)
        self._compact()

    def take_due(self, now: float) -> Iterator[str]:
        """The ids that are due, each forgotten as it is handed out."""
        while (when := self.next()) is not None and when <= now:
            task_id = heapq.heappop(self._heap)[1]
            del self._times[task_id]
            yield task_id

    def next(self) -> float | None:
        """When the next one is due."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _compact(self) -> None:
        # Outdated entries stay in the heap until they surface; they must not outnumber the rest.
        if len(self._heap) > 2 * len(self._times) + 64:
            self._heap = [(when, task_id) for task_id, when in self._times.items()]
            heapq.heapify(self._heap)
