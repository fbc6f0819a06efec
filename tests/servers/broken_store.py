"""Stores that get one thing wrong each, for whoever must notice.

What goes wrong alone is in the first part. The second goes wrong only among writers that race,
told by their threads, and every time: the store itself lets them meet between check and act.
"""

from __future__ import annotations

import threading

from dfq.errors import QueueUnavailable, StoreRefused
from dfq.store import MAX_PAGE, Changed, Exists, Lost, Missing, Page
from dfq.stores.memory import MemoryStore

HOURS = 3600.0


def refused(what: str) -> StoreRefused:
    return StoreRefused(f"memory://: can't {what}: 501 NotImplemented")


class RefusesToCreateConditionally(MemoryStore):
    def create(self, key, body):
        raise refused("write")


class CallsNewKeysOld(MemoryStore):
    def create(self, key, body):
        raise Exists(key)


class ReadsBehind(MemoryStore):
    """Reads show a write only from the second time on."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.behind = {}

    def create(self, key, body):
        etag = super().create(key, body)
        self.behind[key] = None
        return etag

    def read(self, key):
        there = super().read(key)
        return self.behind.pop(key, there)


class ReadsOldVersions(ReadsBehind):
    """The same, but only of what is replaced."""

    create = MemoryStore.create

    def replace(self, key, body, etag):
        before = self._objects.get(key)
        told = super().replace(key, body, etag)
        self.behind[key] = before
        return told


class IgnoresIfNoneMatch(MemoryStore):
    def create(self, key, body):
        return self.put(key, body)


class WritesWhatExists(MemoryStore):
    def create(self, key, body):
        try:
            return super().create(key, body)
        except Exists:
            self.put(key, body)
            raise


class RefusesToReplaceConditionally(MemoryStore):
    def replace(self, key, body, etag):
        raise refused("write")


class ReplacesNothing(MemoryStore):
    def replace(self, key, body, etag):
        raise Changed(key)


class NamesVersionsByTheirSize(MemoryStore):
    def _put(self, key, body):
        super()._put(key, body)
        etag = f"size-{len(body)}"
        self._objects[key] = self._objects[key]._replace(etag=etag)
        return etag


class ReadsAnotherETag(MemoryStore):
    def read(self, key):
        there = super().read(key)
        return there and there._replace(etag=f"W/{there.etag}")


class IgnoresIfMatch(MemoryStore):
    def replace(self, key, body, etag):
        if self._objects.get(key) is None:
            raise Missing(key)
        return self.put(key, body)


class WritesWhatChanged(MemoryStore):
    def replace(self, key, body, etag):
        try:
            return super().replace(key, body, etag)
        except Changed:
            self.put(key, body)
            raise


class ReplacesWhatIsNotThere(MemoryStore):
    def replace(self, key, body, etag):
        try:
            return super().replace(key, body, etag)
        except Missing:
            return self.put(key, body)


class WritesWhatIsNotThere(MemoryStore):
    def replace(self, key, body, etag):
        try:
            return super().replace(key, body, etag)
        except Missing:
            self.put(key, body)
            raise


class TellsNoTime(MemoryStore):
    """Stores with times all the same."""

    def now(self):
        if self._lock.locked():
            return super().now()
        raise QueueUnavailable("memory:// doesn't tell the time")


class LivesIn1970(MemoryStore):
    def now(self):
        return 60.0


class TurnsBackTheClock(MemoryStore):
    """When it is asked for the second time; from then on it runs as it should."""

    asked = 0

    def now(self):
        if not self._lock.locked():
            self.asked += 1
        return super().now() - HOURS * (self.asked > 1)


class DatesWhatIsReadByAnotherClock(MemoryStore):
    def read(self, key):
        there = super().read(key)
        return there and there._replace(modified=there.modified + 2 * HOURS)


class AltersListings(MemoryStore):
    """The entries and where to go on can be changed before they are given out."""

    def list(self, prefix, after="", limit=MAX_PAGE):
        page = super().list(prefix, after, limit)
        return Page(tuple(self.altered(page.entries)), page.next)

    def altered(self, entries):
        return entries


class ListsBehind(AltersListings):
    """The key written last is not listed yet."""

    last = None

    def replace(self, key, body, etag):
        self.last = key
        return super().replace(key, body, etag)

    def altered(self, entries):
        last, self.last = self.last, None
        return [entry for entry in entries if entry.key != last]


class ListsOldVersions(AltersListings):
    old = None

    def replace(self, key, body, etag):
        self.old = (key, etag)
        return super().replace(key, body, etag)

    def altered(self, entries):
        key, etag = self.old or (None, None)
        return [entry._replace(etag=etag) if entry.key == key else entry for entry in entries]


class ListsWrongSizes(AltersListings):
    def altered(self, entries):
        return [entry._replace(size=entry.size + 1) for entry in entries]


class ListsTimesOfAnotherZone(AltersListings):
    def altered(self, entries):
        return [entry._replace(modified=entry.modified + HOURS) for entry in entries]


class ListsTimesOfThePast(AltersListings):
    def altered(self, entries):
        return [entry._replace(modified=entry.modified - HOURS) for entry in entries]


class ListsBackwards(AltersListings):
    def altered(self, entries):
        return reversed(entries)


class ListsNeighbours(MemoryStore):
    """Takes a prefix for the start of a name within a folder, not of a key."""

    def list(self, prefix, after="", limit=MAX_PAGE):
        return super().list(prefix.rstrip("/"), after, limit)


class GivesLargePages(MemoryStore):
    def list(self, prefix, after="", limit=MAX_PAGE):
        return super().list(prefix, after)


class ForgetsTheTail(MemoryStore):
    def list(self, prefix, after="", limit=MAX_PAGE):
        return super().list(prefix, after, limit)._replace(next=None)


class RepeatsThePage(MemoryStore):
    def list(self, prefix, after="", limit=MAX_PAGE):
        return super().list(prefix, "", limit)


class GoesOnAfterKnownKeysOnly(MemoryStore):
    def list(self, prefix, after="", limit=MAX_PAGE):
        if after and after not in self._objects:
            return Page((), None)
        return super().list(prefix, after, limit)


class DeletesWhatChanged(MemoryStore):
    def delete(self, key, etag=None):
        try:
            return super().delete(key, etag)
        except Changed:
            super().delete(key)
            raise


class DeniesItsDeletes(MemoryStore):
    """Says that the version it deletes was not there."""

    def delete(self, key, etag=None):
        deleted = super().delete(key, etag)
        return deleted if etag is None else False


class DeletesNothing(MemoryStore):
    def delete(self, key, etag=None):
        return True if etag is None else super().delete(key, etag)


class DeletesOneAtMost(MemoryStore):
    def delete_many(self, keys):
        return


class ListsGhosts(MemoryStore):
    """What was deleted is listed once more."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.ghosts = []

    def delete_many(self, keys):
        keys = list(keys)
        self.ghosts = [e for key in keys for e in super(ListsGhosts, self).list(key).entries]
        super().delete_many(keys)

    def list(self, prefix, after="", limit=MAX_PAGE):
        ghosts, self.ghosts = self.ghosts, []
        page = super().list(prefix, after, limit)
        return page._replace(entries=(*ghosts, *page.entries))


# No conditional delete: a queue can do without.


class RefusesToDeleteConditionally(MemoryStore):
    def delete(self, key, etag=None):
        if etag is not None:
            raise refused("delete")
        return super().delete(key)


class IgnoresIfMatchOnDelete(MemoryStore):
    def delete(self, key, etag=None):
        return super().delete(key)


class DeletesNoVersion(MemoryStore):
    """Never finds the version that is named."""

    def delete(self, key, etag=None):
        if etag is not None:
            raise Changed(key)
        return super().delete(key)


class SaysDeletedOfAnyVersion(MemoryStore):
    """Leaves another version alone, and says that it deleted it."""

    def delete(self, key, etag=None):
        try:
            return super().delete(key, etag)
        except Changed:
            return True


class CallsWhatIsGoneDeleted(MemoryStore):
    """Right, but all who delete the same version are told that they did."""

    def delete(self, key, etag=None):
        super().delete(key, etag)
        return True


# Wrong among writers that race only.


def racing(key: str, kind: str) -> bool:
    """Whether this is a writer in a race of that kind."""
    return threading.current_thread() is not threading.main_thread() and f"/{kind}-" in key


class Unlocked(MemoryStore):
    """Holds those who have checked until all have, and only then lets them act."""

    parties = 8

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.gate = threading.Barrier(self.parties)

    def meet(self):
        try:
            self.gate.wait(20)
        except threading.BrokenBarrierError:
            return


class CreatesWithoutALock(Unlocked):
    def create(self, key, body):
        if not racing(key, "create"):
            return super().create(key, body)
        if self.read(key) is not None:
            raise Exists(key)
        self.meet()
        return self.put(key, body)


class LetsNobodyCreate(MemoryStore):
    def create(self, key, body):
        if racing(key, "create"):
            raise Exists(key)
        return super().create(key, body)


class LetsALoserCreate(MemoryStore):
    def create(self, key, body):
        try:
            return super().create(key, body)
        except Exists:
            if racing(key, "create"):
                self.put(key, body)
            raise


class CallsTheCreatorLoser(MemoryStore):
    def create(self, key, body):
        etag = super().create(key, body)
        if racing(key, "create"):
            raise Exists(key)
        return etag


class ReplacesWithoutALock(Unlocked):
    def replace(self, key, body, etag):
        if not racing(key, "replace"):
            return super().replace(key, body, etag)
        if self.read(key).etag != etag:
            raise Changed(key)
        self.meet()
        return self.put(key, body)


class LosesAnUpdate(MemoryStore):
    def replace(self, key, body, etag):
        try:
            return super().replace(key, body, etag)
        except Changed:
            if racing(key, "replace"):
                self.put(key, body)
            raise


class LosesTheKey(MemoryStore):
    def replace(self, key, body, etag):
        told = super().replace(key, body, etag)
        if racing(key, "replace"):
            self.delete(key)
        return told


class RacesWithDeletes(MemoryStore):
    """Whoever replaces in a race against deletes loses, or is waited for."""

    waits_for_replace = False

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.replaced = threading.Event()

    def replace(self, key, body, etag):
        if not racing(key, "delete"):
            return super().replace(key, body, etag)
        if not self.waits_for_replace:
            raise Changed(key)
        told = super().replace(key, body, etag)
        self.replaced.set()
        return told

    def delete(self, key, etag=None):
        if not racing(key, "delete"):
            return super().delete(key, etag)
        if self.waits_for_replace:
            self.replaced.wait(20)
        return self.delete_racing(key, etag)


class DeletesTheNewer(RacesWithDeletes):
    waits_for_replace = True

    def delete_racing(self, key, etag):
        return MemoryStore.delete(self, key)


class DeletesTheNewerSilently(RacesWithDeletes):
    waits_for_replace = True

    def delete_racing(self, key, etag):
        MemoryStore.delete(self, key)
        raise Changed(key)


class DeletesWithoutALock(RacesWithDeletes, Unlocked):
    parties = 4

    def delete_racing(self, key, etag):
        if self.read(key).etag != etag:
            raise Changed(key)
        self.meet()
        MemoryStore.delete(self, key)
        return True


class CallsTheDeleterLoser(RacesWithDeletes):
    def delete_racing(self, key, etag):
        MemoryStore.delete(self, key)
        raise Changed(key)


class KeepsWhatWasDeleted(RacesWithDeletes):
    deleted = False

    def delete_racing(self, key, etag):
        with self._lock:
            first, self.deleted = not self.deleted, True
        if first:
            return True
        raise Changed(key)


class LetsNobodyDelete(RacesWithDeletes):
    def delete_racing(self, key, etag):
        raise Lost(f"{key} is contended")
