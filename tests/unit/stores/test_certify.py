"""A store is put to the test before a queue trusts it, and the verdict is remembered."""

from __future__ import annotations

import dataclasses
import threading
from collections import defaultdict
from contextlib import suppress

import orjson
import pytest

from dfq.errors import QueueUnavailable, StoreBusy, StoreNotSafe, StoreRefused, StoreUnsure
from dfq.store import BodyTooLarge, Lost
from dfq.stores.certify import CERTIFIED_KEY, certify, ensure_certified, remember, remembered
from dfq.stores.faults import FaultPlan
from dfq.stores.local import LocalStore
from dfq.stores.memory import MemoryStore
from dfq.stores.verdict import CHECKS_VERSION, Verdict
from dfq.testing import FakeClock, SeededChance
from tests.servers import broken_store as broken

DAY = 86_400.0


def examine(store, **options) -> Verdict:
    return certify(store, chance=SeededChance(7), clock=FakeClock(), **options)


def ensure(store) -> Verdict:
    return ensure_certified(store, chance=SeededChance(7), clock=FakeClock())


def keys_of(store) -> list[str]:
    return [entry.key for entry in store.list("").entries]


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch):
    monkeypatch.setattr("dfq.stores.certify_scratch._LONGEST_WAIT_SECONDS", 0.01)


@pytest.fixture
def store():
    return MemoryStore(clock=FakeClock())


# What passes


def test_a_store_in_memory_passes(store):
    verdict = examine(store)
    assert (verdict.problems, verdict.ok, verdict.conditional_delete) == ((), True, True)
    assert verdict.rounds == {"create": 10, "replace": 10, "delete": 10}
    assert (verdict.store, verdict.at) == (store.url, store.now())


def test_a_store_in_a_directory_passes(tmp_path):
    store = LocalStore(tmp_path / "store")
    verdict = examine(store, rounds=3)
    assert (verdict.problems, verdict.conditional_delete) == ((), True)
    assert keys_of(store) == []


def test_the_requests_are_counted_and_few(store):
    store.read("something-before")
    before = store.requests.snapshot()
    verdict = examine(store)
    after = store.requests.snapshot()
    assert verdict.requests == {kind: after[kind] - before[kind] for kind in after}
    assert verdict.requests["put"] + verdict.requests["list"] <= 250
    assert verdict.requests["get"] <= 50


def test_a_race_that_takes_long_is_cut_short(store):
    class Slow(FakeClock):
        def boot(self):
            self.advance(0.1)
            return super().boot()

    verdict = certify(store, chance=SeededChance(7), clock=Slow(), race_seconds=0.1)
    assert verdict.ok
    assert verdict.rounds == {"create": 3, "replace": 3, "delete": 3}


def test_a_race_of_one_is_refused(store):
    for options in ({"writers": 1}, {"rounds": 0}):
        with pytest.raises(ValueError, match="2 writers and 1 round"):
            examine(store, **options)


# What is refused, each by the one check that notices

ALONE = [
    (broken.RefusesToCreateConditionally, "create: with If-None-Match nothing is stored"),
    (broken.CallsNewKeysOld, "create: a key that nobody had was told to exist"),
    (broken.ReadsBehind, "read: what was just written was not read back at once"),
    (
        broken.IgnoresIfNoneMatch,
        "create: a key that exists was created again; If-None-Match is not",
    ),
    (broken.WritesWhatExists, "create: a key was told to exist, and written all the same"),
    (broken.RefusesToReplaceConditionally, "replace: with If-Match nothing is stored"),
    (broken.ReplacesNothing, "replace: a version was not replaced though its own ETag was named"),
    (broken.NamesVersionsByTheirSize, "etag: the body changed, and its ETag did not"),
    (broken.ReadsOldVersions, "read: what was just written was not read back at once"),
    (broken.ReadsAnotherETag, "etag: a write told "),
    (broken.IgnoresIfMatch, "replace: a version was replaced though the ETag of an older one"),
    (broken.WritesWhatChanged, "replace: a version was told to be another, and replaced all"),
    (broken.ReplacesWhatIsNotThere, "replace: a key that is not there was replaced"),
    (broken.WritesWhatIsNotThere, "replace: a key was told not to be there, and written all"),
    (broken.LivesIn1970, "time: the store's clock says 60 seconds since 1970, before 2020"),
    (broken.TurnsBackTheClock, "time: the store's clock went back by 3600 seconds"),
    (broken.DatesWhatIsReadByAnotherClock, "time: what was written now is dated +7200 seconds off"),
    (broken.ListsBehind, "list: 1 of 5 keys just written are missing"),
    (broken.ListsOldVersions, "list: a key is listed with the ETag "),
    (broken.ListsWrongSizes, "list: a key is listed with 45 bytes, and has 44"),
    (broken.ListsTimesOfAnotherZone, "time: a key just written is listed +3600 seconds off"),
    (broken.ListsTimesOfThePast, "time: a key just written is listed -3600 seconds off"),
    (broken.ListsBackwards, "list: the keys are not in the order of their bytes"),
    (broken.ListsNeighbours, "list: 1 keys too many: the prefix is not obeyed"),
    (broken.GivesLargePages, "list: a page of 2 keys was asked for, and 5 came"),
    (broken.ForgetsTheTail, "list: of 5 keys in pages of 2 came 2, 0 of them twice"),
    (broken.RepeatsThePage, "list: of 5 keys in pages of 2 came 2, 6 of them twice"),
    (broken.GoesOnAfterKnownKeysOnly, "list: 0 keys came after one that is not there, not 3"),
    (broken.DeletesWhatChanged, "delete: a version was told to be another, and deleted all"),
    (broken.DeniesItsDeletes, "delete: a version was told not to be there, and deleted all"),
    (broken.DeletesNothing, "delete: keys that were told to be deleted were still read"),
    (broken.DeletesOneAtMost, "delete: keys that were told to be deleted together are still there"),
    (broken.ListsGhosts, "list: a key that was deleted before is still listed"),
]

RACING = [
    (broken.CreatesWithoutALock, "create: 8 of 8 writers created the same key; exactly one may"),
    (broken.LetsNobodyCreate, "create: none of 8 writers created the same key; exactly one must"),
    (broken.LetsALoserCreate, "create: a writer was told that it created the same key, but the "),
    (broken.CallsTheCreatorLoser, "create: a writer was told that it lost, but the body there is"),
    (broken.ReplacesWithoutALock, "replace: 8 of 8 writers replaced the same version; exactly one"),
    (broken.LosesAnUpdate, "replace: a writer was told that it replaced the same version, but "),
    (broken.LosesTheKey, "replace: a key was gone after writers had raced to replace it"),
    (broken.DeletesTheNewer, "delete: one version was replaced by 1 writers and deleted by 1"),
    (broken.DeletesTheNewerSilently, "delete: a writer was told that it replaced a version, but "),
    (broken.DeletesWithoutALock, "delete: 4 of 4 writers deleted the same version; exactly one"),
    (broken.CallsTheDeleterLoser, "delete: a key is gone, but no writer was told that it deleted"),
    (
        broken.KeepsWhatWasDeleted,
        "delete: a writer was told that it deleted a version, but the key",
    ),
    (broken.LetsNobodyDelete, "replace: none of 4 writers replaced the same version"),
]


@pytest.mark.parametrize(
    ("kind", "problem"), [*ALONE, *RACING], ids=lambda value: getattr(value, "__name__", "")
)
def test_a_broken_store_is_refused_for_just_what_it_got_wrong(kind, problem):
    verdict = examine(kind(clock=FakeClock()))
    assert not verdict.ok
    (said,) = verdict.problems
    assert said.startswith(problem)


@pytest.mark.parametrize("kind", [kind for kind, _ in ALONE], ids=lambda kind: kind.__name__)
def test_no_race_is_paid_for_once_a_store_has_failed(kind):
    verdict = examine(kind(clock=FakeClock()))
    assert set(verdict.rounds.values()) == {0}
    assert sum(verdict.requests.values()) < 60


def test_a_store_that_tells_no_time_is_refused():
    problems = examine(broken.TellsNoTime(clock=FakeClock())).problems
    assert problems
    assert all(problem.startswith("time: the store does not tell it") for problem in problems)


# A store without conditional delete


@pytest.mark.parametrize(
    "kind",
    [
        broken.RefusesToDeleteConditionally,
        broken.IgnoresIfMatchOnDelete,
        broken.DeletesNoVersion,
        broken.SaysDeletedOfAnyVersion,
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_store_without_conditional_delete_passes_and_is_told_so(kind):
    store = kind(clock=FakeClock())
    verdict = ensure(store)
    assert (verdict.problems, verdict.conditional_delete) == ((), False)
    assert store.conditional_delete is False
    assert verdict.rounds == {"create": 10, "replace": 10, "delete": 0}
    (note,) = verdict.notes
    assert "does without" in note
    again = kind(clock=FakeClock())
    again._objects, again._keys = store._objects, store._keys
    assert ensure(again) == verdict
    assert again.conditional_delete is False


def test_a_store_that_was_told_to_have_no_conditional_delete_is_not_asked_for_one(store):
    store.conditional_delete = False
    given = []
    store.delete = lambda key, etag=None: given.append(etag) or MemoryStore.delete(store, key)
    verdict = examine(store)
    assert (verdict.ok, verdict.conditional_delete) == (True, False)
    assert set(given) == {None}


def test_a_store_that_calls_what_is_gone_deleted_may_have_many_deleters():
    verdict = examine(broken.CallsWhatIsGoneDeleted(clock=FakeClock()))
    assert (verdict.problems, verdict.conditional_delete) == ((), True)
    assert verdict.rounds["delete"] == 10


# Bad days


@pytest.mark.parametrize("seed", range(15))
def test_a_bad_network_does_not_make_a_good_store_look_bad(seed):
    faults = FaultPlan(
        SeededChance(seed),
        late=0.02,
        lost=0.03,
        lost_answer=0.03,
        duplicated=0.02,
        conflict=0.03,
        slow_down=0.03,
    )
    store = MemoryStore(clock=FakeClock(), faults=faults)
    verdict = examine(store, rounds=3)
    assert (verdict.problems, verdict.conditional_delete) == ((), True)


class ArrivesLate(MemoryStore):
    """No answer to the first race of replaces, and its requests come with the second one."""

    silent = 64

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.under_way = []

    def replace(self, key, body, etag):
        if not broken.racing(key, "replace"):
            return super().replace(key, body, etag)
        self.silent -= 1
        if self.silent >= 0:
            self.under_way.append((key, body, etag))
            raise StoreUnsure("no answer")
        while self.under_way:
            with suppress(Lost, IndexError):
                super().replace(*self.under_way.pop())
        return super().replace(key, body, etag)


def test_requests_that_arrive_in_the_next_round_do_not_count_there():
    store = ArrivesLate(clock=FakeClock())
    assert examine(store).problems == ()
    assert store.silent < 0


class BringsBack(MemoryStore):
    """A bad network repeats the create of a key after it was deleted in a race."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.created = {}
        self.brought_back = defaultdict(threading.Event)

    def create(self, key, body):
        self.created.setdefault(key, body)
        return super().create(key, body)

    def replace(self, key, body, etag):
        if broken.racing(key, "delete"):
            self.brought_back[key].wait(20)
        return super().replace(key, body, etag)

    def delete(self, key, etag=None):
        deleted = super().delete(key, etag)
        if deleted and broken.racing(key, "delete"):
            self.put(key, self.created[key])
            self.brought_back[key].set()
        return deleted


def test_a_key_that_the_network_brings_back_is_not_the_store_s_fault():
    store = BringsBack(clock=FakeClock())
    assert examine(store).problems == ()
    assert [event.is_set() for event in store.brought_back.values()] == [True] * 10


class Failing(MemoryStore):
    """From the n-th write on nothing works."""

    error: Exception = StoreRefused("memory://: can't write: 403; allow s3:PutObject")
    good = 0

    def _write(self, *arguments, **options):
        self.good -= 1
        if self.good < 0:
            raise self.error
        return super()._write(*arguments, **options)


@pytest.mark.parametrize("good", [0, 1, 10, 21, 40])
@pytest.mark.parametrize("error", [StoreRefused, StoreBusy, StoreUnsure, QueueUnavailable])
def test_a_store_that_can_not_be_used_now_gets_no_verdict(error, good):
    store = Failing(clock=FakeClock())
    store.good, store.error = good, error("not now")
    with pytest.raises((error, QueueUnavailable)) as caught:
        ensure(store)
    assert not isinstance(caught.value, StoreNotSafe)
    assert remembered(store) is None


def test_permission_that_is_missing_is_told_at_once_and_is_no_verdict(store):
    asked = []

    def read(key):
        asked.append(key)
        raise StoreRefused("memory://: can't read: 403; allow s3:GetObject")

    store.read = read
    with pytest.raises(StoreRefused, match="s3:GetObject"):
        examine(store)
    assert len(asked) == 1
    assert keys_of(store) == []


def test_patience_ends_with_the_time_and_not_only_with_the_tries(store):
    class Slow(FakeClock):
        def boot(self):
            self.advance(20)
            return super().boot()

    tried = []

    def create(key, body):
        tried.append(key)
        raise StoreBusy("memory:// is busy")

    store.create = create
    with pytest.raises(StoreBusy):
        certify(store, chance=SeededChance(7), clock=Slow())
    assert len(tried) == 2


def test_races_that_are_never_decided_are_no_verdict(store):
    def create(key, body):
        if threading.current_thread() is not threading.main_thread():
            raise StoreUnsure("no answer")
        return MemoryStore.create(store, key, body)

    store.create = create
    with pytest.raises(QueueUnavailable, match="0 of 10 races were decided"):
        examine(store)


def test_what_a_writer_stumbles_over_is_raised(store):
    def create(key, body):
        if threading.current_thread() is not threading.main_thread():
            raise ZeroDivisionError
        return MemoryStore.create(store, key, body)

    store.create = create
    with pytest.raises(ZeroDivisionError):
        examine(store)
    assert keys_of(store) == []


def test_a_machine_without_threads_to_race_is_told_so(store, monkeypatch):
    started = []

    class Thread(threading.Thread):
        def start(self):
            if len(started) == 3:
                raise RuntimeError("can't start new thread")
            started.append(self)
            super().start()

    monkeypatch.setattr("dfq.stores.certify_races.threading.Thread", Thread)
    with pytest.raises(QueueUnavailable, match="8 writers are to race, but can't start new"):
        examine(store)
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()
    assert keys_of(store) == []


# What is left behind


@pytest.mark.parametrize(
    "kind",
    [MemoryStore, broken.CreatesWithoutALock, broken.WritesWhatIsNotThere, broken.ListsBehind],
    ids=lambda kind: kind.__name__,
)
def test_nothing_is_left_behind(kind):
    store = kind(clock=FakeClock())
    store.put("pending/ab/one/task.json", b"{}")
    examine(store)
    assert keys_of(store) == ["pending/ab/one/task.json"]


def test_nothing_is_left_behind_by_a_certification_that_fails(store):
    store.list = lambda *arguments: (_ for _ in ()).throw(StoreRefused("can't list: 403"))
    with pytest.raises(StoreRefused, match="can't list"):
        examine(store)
    del store.list
    assert keys_of(store) == []


def test_what_a_certification_that_was_cut_short_left_long_ago_is_deleted():
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    store.put("certify/dead/create", b"")
    store.put("certified-by/hand", b"")
    clock.advance(2 * DAY)
    store.put("certify/alive/create", b"")
    examine(store)
    assert keys_of(store) == ["certified-by/hand", "certify/alive/create"]


def test_a_listing_of_other_keys_costs_nobody_a_task():
    clock = FakeClock()

    class ListsAll(MemoryStore):
        def list(self, prefix, after="", limit=1000):
            return super().list("", after, limit)

    store = ListsAll(clock=clock)
    store.put("pending/ab/one/task.json", b"{}")
    clock.advance(2 * DAY)
    assert not examine(store).ok
    assert store.read("pending/ab/one/task.json") is not None


# What is remembered


class At(MemoryStore):
    """Has the endpoint's name, as an S3 store does."""

    endpoint = "https://first.example"


def test_what_passed_is_remembered_and_costs_one_get():
    store = At(clock=FakeClock())
    verdict = ensure(store)
    assert orjson.loads(store.read(CERTIFIED_KEY).body)["endpoint"] == "https://first.example"
    before = store.requests.snapshot()
    assert ensure(store) == verdict
    after = store.requests.snapshot()
    assert {kind: after[kind] - before[kind] for kind in after if after[kind] != before[kind]} == {
        "get": 1
    }


def test_a_bucket_behind_another_server_is_certified_again():
    store = At(clock=FakeClock())
    ensure(store)
    store.endpoint = "https://second.example"
    assert remembered(store) is None
    assert ensure(store).endpoint == "https://second.example"
    assert remembered(store).endpoint == "https://second.example"


def test_what_passed_older_checks_is_certified_again_and_newer_ones_are_believed(store):
    verdict = ensure(store)
    for checks, believed in ((CHECKS_VERSION - 1, False), (CHECKS_VERSION + 1, True)):
        other = dataclasses.replace(verdict, checks=checks)
        remember(store, other)
        assert remembered(store) == (other if believed else None)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[: len(body) // 2],
        lambda body: b"",
        lambda body: b"[]",
        lambda body: b"null",
        lambda body: b"\xff\xfe",
        lambda body: body.replace(b'"at"', b'"art"'),
        lambda body: body.replace(b'"endpoint": "memory', b'"endpoint": 5, "was": "memory'),
        lambda body: body.replace(b'"requests": {', b'"requests": 5, "were": {'),
        lambda body: body.replace(b'"problems": []', b'"problems": ["create: wrong"]'),
        lambda body: body.replace(b'"ok": true', b'"ok": false'),
    ],
)
def test_a_damaged_verdict_is_not_believed(store, change):
    ensure(store)
    body = store.read(CERTIFIED_KEY).body
    assert change(body) != body
    store.put(CERTIFIED_KEY, change(body))
    assert remembered(store) is None
    assert ensure(store).ok
    assert remembered(store) is not None


def test_a_refusal_is_raised_with_its_reasons_and_not_remembered():
    store = broken.IgnoresIfMatch(clock=FakeClock())
    store.endpoint = "http://nas.local:9000"
    with pytest.raises(StoreNotSafe) as caught:
        ensure(store)
    said = str(caught.value)
    assert said.startswith("memory:// at http://nas.local:9000 is not safe for a queue: replace: ")
    assert "such as AWS S3 or SeaweedFS" in said
    assert "`dfq doctor`" in said
    assert (caught.value.exit_code, len(caught.value.problems)) == (78, 1)
    assert keys_of(store) == []


def test_a_refusal_that_somebody_stored_lets_nobody_pass(store):
    refusal = dataclasses.replace(examine(store), problems=("create: wrong",))
    remember(store, refusal)
    assert remembered(store) is None


def test_a_verdict_that_can_not_be_stored_still_counts(store):
    store.put = lambda key, body: (_ for _ in ()).throw(StoreUnsure("no answer"))
    assert ensure(store).ok
    assert remembered(store) is None


def test_a_verdict_comes_back_from_json_as_it_was(store):
    for verdict in (
        examine(store),
        examine(broken.IgnoresIfMatch(clock=FakeClock())),
        examine(broken.IgnoresIfMatchOnDelete(clock=FakeClock())),
    ):
        content = orjson.loads(orjson.dumps(verdict.to_json()))
        assert content["ok"] is verdict.ok
        assert Verdict.from_json(content) == verdict
        assert Verdict.from_json({**content, "added_later": 1}) == verdict


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"store": 5}, "5 is no text"),
        ({"endpoint": None}, "None is no text"),
        ({"problems": [5]}, "5 is no text"),
        ({"problems": None}, "no verdict"),
        ({"requests": []}, "no verdict"),
        ({"requests": {"put": None}}, "no verdict"),
        ({"rounds": 10}, "no verdict"),
        ({"at": "today"}, "today"),
        ({"checks": {}}, "no verdict"),
        ({"ok": False}, "contradicts itself"),
    ],
)
def test_what_is_no_verdict_is_not_read_as_one(store, change, said):
    content = examine(store, rounds=1).to_json()
    with pytest.raises(ValueError, match=said):
        Verdict.from_json({**content, **change})
    for name in change:
        without = {key: value for key, value in content.items() if key != name}
        with pytest.raises(ValueError, match=r"no verdict|contradicts"):
            Verdict.from_json(without)


def test_a_verdict_is_an_object():
    with pytest.raises(ValueError, match="a verdict is a JSON object, not list"):
        Verdict.from_json([])


def test_a_foreign_object_too_large_to_read_is_no_verdict(store):
    def read(key):
        raise BodyTooLarge(f"{key} has more bytes than that")

    store.read = read
    assert remembered(store) is None
