"""The s3 engine: a queue in a bucket, with its leases taken right there.

:class:`S3Queue` has the verbs and puts the parts together; it works over any
:class:`~dfq.store.Store`. Start reading at :mod:`dfq.engines.s3.register`: lease.json is the one
object that everything turns on.
"""

from __future__ import annotations

import threading

# Within a queue `list` is a verb.
from builtins import list as List
from collections.abc import Iterator, Sequence
from typing import Final, cast

import orjson

from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK, Chance, Clock
from dfq.cost import Usage
from dfq.engines.arguments import checked_state
from dfq.engines.base import EngineQueue, bounded_text
from dfq.engines.s3.applying import Applying
from dfq.engines.s3.beats import Beats
from dfq.engines.s3.bodies import NORMAL, dumps, own, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.claiming import Claiming
from dfq.engines.s3.dependencies import Dependencies
from dfq.engines.s3.finished import Finished
from dfq.engines.s3.idling import Idling
from dfq.engines.s3.keys import PAUSED
from dfq.engines.s3.looking import Looking
from dfq.engines.s3.policies import checked_policy, policy_in
from dfq.engines.s3.pushing import Pushing
from dfq.engines.s3.register import Register
from dfq.engines.s3.rescuing import Rescuing
from dfq.engines.s3.settling import Settling
from dfq.engines.s3.standings import Standings
from dfq.engines.s3.sweeping import Sweeping
from dfq.engines.s3.upkeep import Upkeep
from dfq.engines.s3.view import View
from dfq.engines.s3.writes import Pause
from dfq.errors import DfqError
from dfq.lease import Lease
from dfq.payload import JSON
from dfq.policy import Policy
from dfq.record import (
    EVERYTHING,
    Filter,
    Finding,
    Outcome,
    Pushed,
    Record,
    State,
    Stats,
    SweepReport,
)
from dfq.store import Store
from dfq.stores.certify import ensure_certified
from dfq.task import ErrorKind, NewTask, check_id

#: What was seen of the queue is good enough for so long, while there is something left to try.
ATTENTION_SECONDS: Final = 60.0
SWEEP_SECONDS: Final = 900.0
#: Requests that one verb sends at once, where it can.
PARALLEL: Final = 8


class S3Queue(EngineQueue):
    """A queue in a store. Every handle may be a worker of its own."""

    def __init__(
        self,
        store: Store,
        *,
        url: str | None = None,
        policy: Policy | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: Chance = SYSTEM_CHANCE,
        attention_seconds: float = ATTENTION_SECONDS,
        parallel: int = PARALLEL,
        certified: bool = False,
        pause: Pause | None = None,
    ) -> None:
        policy = checked_policy(policy, store.url) if policy else policy_in(store)
        bucket = Bucket(
            store,
            clock=clock,
            chance=chance,
            policy=policy,
            parallel=parallel,
            pause=pause,
        )
        super().__init__(url or store.url, policy=policy, clock=bucket.clock, chance=chance)
        self._bucket = bucket
        register = Register(bucket)
        applying = Applying(bucket, register)
        self._beats = Beats(bucket)
        self._finished = Finished(bucket)
        standings = Standings(bucket)
        self._looking = Looking(bucket, standings, self._beats, self._finished)
        self._pushing = Pushing(bucket, self._looking, self._finished)
        self._settling = Settling(
            bucket, register, applying, self._beats, self._looking, self._finished
        )
        view = View(bucket)
        rescuing = Rescuing(
            bucket,
            register,
            applying,
            self._beats,
            self._looking,
            view,
            attention_seconds=attention_seconds,
        )
        self._dependencies = Dependencies(bucket, self._looking, self._finished, view)
        self._claiming = Claiming(
            bucket,
            register,
            applying,
            self._beats,
            view,
            rescuing,
            self._dependencies,
            attention_seconds=attention_seconds,
        )
        self._upkeep = Upkeep(bucket, register, applying, self._looking, self._finished)
        self._sweeping = Sweeping(
            bucket,
            register,
            standings,
            self._looking,
            self._finished,
            self._claiming,
            rescuing,
            self._upkeep.end,
        )
        self._idling = Idling(bucket.clock, chance)
        self._certified = certified
        self._certifying = threading.Lock()

    @property
    def store(self) -> Store:
        """Where the queue is kept."""
        return self._bucket.store

    @property
    def poll_seconds(self) -> float:
        """An idle worker looks no more often: every look is a request that is paid for."""
        return max(self._policy.safety_poll_seconds, self._idling.longest_seconds)

    @property
    def sweep_seconds(self) -> float:
        """A sweep lists the whole queue; claims end the leases of the silent anyway."""
        return SWEEP_SECONDS

    def sight(self) -> int | None:
        """Stands for all that the last claim saw of the queue; None if that was not all of it."""
        return self._claiming.view.mark

    def count_unfinished(self) -> int:
        """About how many tasks may still be done: by their keys, so that none is read."""
        return self._looking.count_pending()

    def pending_stats(self) -> Stats:
        """Count what is pending; of what is finished, only what costs nothing more."""
        return self._looking.stats(pending_only=True)

    def _certify(self) -> None:
        """A store that lets two writers win must never see a lease."""
        if not self._certified:
            with self._certifying:
                if not self._certified:
                    ensure_certified(self.store, chance=self._chance, clock=self._clock)
                    self._certified = True

    # The primitives

    def _push(self, tasks: List[NewTask]) -> List[Pushed]:
        self._certify()
        pushed = self._pushing.push(tasks)
        if any(task.priority > NORMAL for task in tasks):
            self._claiming.view.expire()
        self._bucket.tally.add("pushed", sum(one.created for one in pushed))
        self._stir()
        return pushed

    def _claim(
        self, limit: int, worker_id: str, lease_seconds: float, filter: Filter
    ) -> List[Lease]:
        self._certify()
        leases = self._claiming.claim(limit, worker_id, lease_seconds, filter)
        self._bucket.tally.add("claimed", len(leases))
        self._idling.claimed(bool(leases))
        return leases

    def _heartbeat(self, lease: Lease, lease_seconds: float) -> Lease:
        (answer,) = self._settling.heartbeat([lease], lease_seconds)
        if isinstance(answer, DfqError):
            raise answer
        return answer

    def _heartbeat_many(
        self, leases: Sequence[Lease], lease_seconds: float
    ) -> List[Lease | DfqError]:
        return self._settling.heartbeat(leases, lease_seconds)

    def _ack(self, lease: Lease, result: bytes | None) -> None:
        value = None if result is None else orjson.Fragment(result)
        self._settling.ack(lease, value, len(result or b""))
        self._bucket.tally.add("completed")
        self._dependencies.completed(lease.task_id)
        self._stir()

    def _nack(self, lease: Lease, error: str, kind: str, delay_seconds: float) -> Outcome:
        outcome = self._settling.nack(lease, error, cast(ErrorKind, kind), delay_seconds)
        self._stir()
        return outcome

    def _release(self, lease: Lease, delay_seconds: float) -> None:
        self._settling.release(lease, delay_seconds)
        self._stir()

    def _bury_lease(self, lease: Lease, reason: str) -> None:
        self._settling.bury(lease, reason)

    def _fail(self, task_id: str, reason: str, kind: str, held: bool) -> None:
        self._certify()
        self._upkeep.fail(task_id, reason, cast(ErrorKind, kind), held=held)

    def _save_state(self, lease: Lease, state: bytes) -> None:
        self._settling.save_state(lease, orjson.Fragment(state))

    # The other verbs

    def requeue(self, task_id: str) -> None:
        """Give a failed task its attempts back; its history and fence stay."""
        check_id(task_id)
        self._certify()
        self._upkeep.requeue(task_id)
        self._stir()

    def pause(self, reason: str = "") -> None:
        """Stop handing out tasks, for every worker of this queue. Running ones finish."""
        note = {
            "at": stamp(self._clock.wall()),
            "by": self._own_worker_id(),
            "reason": bounded_text(reason),
        }
        self.store.put(PAUSED, dumps(note))
        self._claiming.view.expire()

    def resume(self) -> None:
        """Undo :meth:`pause`."""
        self.store.delete(PAUSED)
        self._stir()

    def get(self, task_id: str) -> Record | None:
        """All about one task, or None."""
        return self._looking.get(check_id(task_id))

    def list(
        self, state: State | None = None, *, filter: Filter = EVERYTHING, limit: int | None = None
    ) -> Iterator[Record]:
        """Tasks in a state (or all), in no promised order."""
        state = checked_state(state)
        remaining = -1 if limit is None else limit
        if remaining == 0:
            return
        for record in self._looking.records(state, filter):
            yield record
            remaining -= 1
            if remaining == 0:
                return

    def leases(self) -> List[Lease]:
        """Who holds what."""
        return self._looking.leases()

    def stats(self) -> Stats:
        """Count everything."""
        return self._looking.stats()

    def purge(self, state: State | None = None, *, older_than_seconds: float | None = None) -> int:
        """Delete tasks for good; leased ones only by ``state="leased"``."""
        self._certify()
        return self._upkeep.purge(checked_state(state), older_than_seconds=older_than_seconds)

    def sweep(self) -> SweepReport:
        """Put right what crashes left behind, and fold records of completed tasks."""
        self._certify()
        self._settling.fold()
        self._beats.tell()
        return self._sweeping.sweep()

    def usage(self) -> List[Usage]:
        """What the processes of the last day asked of the store, and this one."""
        return self._beats.usage()

    def doctor(self) -> List[Finding]:
        """Look for trouble, in the store and in the queue. Changes nothing in the queue."""
        from dfq.engines.s3.doctor import examine

        return examine(self, self._bucket, self._looking, self._finished)

    def load_state(self, task_id: str) -> JSON:
        """What :meth:`save_state` kept for this task, or None."""
        stands = self._looking.standing_of(check_id(task_id))
        saved = None if stands.task is None else stands.task.saved
        if stands.lease is not None:
            saved = stands.lease.fields.get("saved", saved)
        return None if saved is None else own(saved["value"])

    def wait(self, timeout_seconds: float) -> bool:
        """Block until there may be work, at most so long. True: worth a claim."""
        return self._idling.wait(timeout_seconds)

    def interrupt(self) -> None:
        """Wake every thread that is in :meth:`wait`."""
        self._idling.interrupt()

    def close(self) -> None:
        """Let go of connections. Leases stay."""
        self.interrupt()
        # From here on no request is tried twice: a store that is down holds nobody up.
        self.store.close()
        self._beats.farewell()
        self.store.close()

    def _stir(self) -> None:
        """Something changed that a claim may find."""
        self._idling.stir()
