"""Any sequence of verbs, through two handles, against a model small enough to be obviously right.

Where the promises leave an engine a choice, the model follows what it sees: the order within
a priority, and when exactly a lease or a life that is over is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dfq import (
    AlreadyCompleted,
    DependencyCycle,
    DuplicateTask,
    Filter,
    Lease,
    LeaseLost,
    LeaseNotHeld,
    LeaseTaken,
    Outcome,
    TaskNotFound,
    WrongState,
)

EXAMPLES = {"s3 on ministack": 8, "s3 on seaweedfs": 8, "s3 on moto": 2}
IDS = [f"t{i}" for i in range(4)]
LEASE_SECONDS = 60.0
# Chosen so that no sum of them meets a lease, a delay or a time to live exactly.
STEPS = [3.3, 17.17, 61.717]

ids = st.sampled_from(IDS)
handles = st.integers(0, 1)
delays = st.sampled_from([0, 0, 0, 10, 30])
# Mostly none, or little would ever run.
dependencies = st.just([]) | st.just([]) | st.lists(ids, max_size=2, unique=True)


@dataclass
class Modelled:
    """What the model knows of one task."""

    priority: int
    project: str | None
    depends_on: tuple[str, ...]
    max_attempts: int
    not_before: float
    expires_at: float
    place: str = "pending"
    attempts: int = 0
    fence: int = 0
    kinds: list[str] = field(default_factory=list)
    holder: Lease | None = None
    deadline: float = 0.0
    result: object = None


class Machine(RuleBasedStateMachine):
    """The engine and the model, side by side."""

    make_engine = None

    def __init__(self):
        super().__init__()
        self.engine = type(self).make_engine()
        self.clock = self.engine.clock
        first = self.engine.open_queue(lease_seconds=LEASE_SECONDS)
        self.queues = [first, self.engine.reopen()]
        self.tasks: dict[str, Modelled] = {}
        self.leases: list[Lease] = []
        self.paused = False
        self.acks = 0

    def teardown(self):
        self.engine.close()

    # The model

    def unmet(self, task):
        return {
            d: self.tasks[d].place if d in self.tasks else "unknown"
            for d in task.depends_on
            if d not in self.tasks or self.tasks[d].place != "completed"
        }

    def state(self, task):
        if task.place != "pending":
            return task.place
        if task.holder:
            return "leased"
        if self.unmet(task):
            return "blocked"
        return "delayed" if task.not_before > self.clock.wall() else "ready"

    def lease_is_over(self, task):
        return bool(task.holder) and task.place == "pending" and task.deadline < self.clock.boot()

    def life_is_over(self, task):
        return task.place == "pending" and not task.holder and task.expires_at < self.clock.wall()

    def claimable(self, task, filter):
        matches = filter.project in (None, task.project) and (
            filter.min_priority is None or task.priority >= filter.min_priority
        )
        return matches and self.state(task) == "ready" and not self.life_is_over(task)

    def fail(self, task, kind):
        task.kinds.append(kind)
        task.place = "failed"

    def give_back(self, task, kind, delay=0.0):
        task.kinds.append(kind)
        task.attempts += 1
        if task.attempts >= task.max_attempts:
            task.place = "failed"
        else:
            task.holder = None
            task.not_before = self.clock.wall() + delay

    def follow(self):
        """Catch up with what the engine noticed by itself."""
        for task_id, task in self.tasks.items():
            if self.lease_is_over(task):
                record = self.queues[0].get(task_id)
                if record.state != "leased" or record.lease.lease_id != task.holder.lease_id:
                    self.give_back(task, "crash")
            if self.life_is_over(task) and self.queues[0].get(task_id).state == "failed":
                self.fail(task, "expired")

    def waits_for(self, start, goal, places):
        """Whether ``goal`` is reached from ``start`` along dependencies of tasks in ``places``."""
        seen, remaining = set(), list(start)
        while remaining:
            task_id = remaining.pop()
            if task_id == goal:
                return True
            task = self.tasks.get(task_id)
            if task and task.place in places and task_id not in seen:
                seen.add(task_id)
                remaining.extend(self.unmet(task))
        return False

    # Verbs

    @rule(
        handle=handles,
        task_id=ids,
        priority=st.sampled_from([0, 50, 50, 100]),
        project=st.sampled_from([None, "a", "b"]),
        depends_on=dependencies,
        delay=delays,
        ttl=st.sampled_from([None, None, None, 40]),
        max_attempts=st.integers(1, 3),
        many=st.booleans(),
    )
    def push(self, handle, task_id, priority, project, depends_on, delay, ttl, max_attempts, many):
        depends_on = tuple(d for d in depends_on if d != task_id)
        queue, now = self.queues[handle], self.clock.wall()
        options = {
            "id": task_id,
            "priority": priority,
            "project": project,
            "depends_on": depends_on,
            "delay": delay,
            "ttl": ttl,
            "max_attempts": max_attempts,
        }
        try:
            if many:
                (pushed,) = queue.push_many([queue.new_task(task_id, **options)])
                assert pushed.id == task_id
                created = pushed.created
            else:
                assert queue.push(task_id, **options).id == task_id
                created = True
        except DuplicateTask:
            created = False
        except DependencyCycle:
            assert self.waits_for(depends_on, task_id, ("pending", "failed"))
            return
        assert created == (task_id not in self.tasks)
        if created:
            assert not self.waits_for(depends_on, task_id, ("pending",))
            self.tasks[task_id] = Modelled(
                priority=priority,
                project=project,
                depends_on=depends_on,
                max_attempts=max_attempts,
                not_before=now + delay,
                expires_at=float("inf") if ttl is None else now + ttl,
            )

    @rule(
        handle=handles,
        limit=st.integers(1, 3),
        filter=st.sampled_from([Filter(), Filter(), Filter(project="a"), Filter(min_priority=50)]),
    )
    def claim(self, handle, limit, filter):
        ready = {i for i, task in self.tasks.items() if self.claimable(task, filter)}
        over = {i for i, task in self.tasks.items() if self.lease_is_over(task)}
        leases = self.queues[handle].claim_many(limit, f"w{handle}", filter=filter)
        assert not (self.paused and leases)
        assert len(leases) <= limit
        taken = {lease.task_id for lease in leases}
        assert len(taken) == len(leases)
        for lease in leases:
            task = self.tasks[lease.task_id]
            if lease.task_id in over:
                self.give_back(task, "crash")
            assert lease.task_id in ready | over
            assert self.claimable(task, filter)
            assert lease.fence > task.fence
            assert lease.attempt == task.attempts + 1
            assert lease.task.payload == lease.task_id
            assert [error.kind for error in lease.task.errors] == task.kinds
            task.fence, task.holder = lease.fence, lease
            task.deadline = self.clock.boot() + LEASE_SECONDS
            self.leases.append(lease)
        if leases:
            lowest = min(self.tasks[i].priority for i in taken)
            assert all(self.tasks[i].priority <= lowest for i in ready - taken)
        self.follow()
        if len(leases) < limit and not self.paused:
            left = {i for i, task in self.tasks.items() if self.claimable(task, filter)}
            assert not left, "there was more to claim"

    def use(self, data, verb):
        """Call ``verb`` with some lease; True if it was obeyed, which only the newest is."""
        lease = data.draw(st.sampled_from(self.leases[-5:]), label="lease")
        task = self.tasks.get(lease.task_id)
        newest = task is not None and task.holder is not None
        newest = newest and task.holder.lease_id == lease.lease_id and task.place == "pending"
        over = task is not None and self.lease_is_over(task)
        try:
            answer = verb(lease)
        except LeaseLost as error:
            assert not newest or over
            if not over:
                assert type(error) is self.why_lost(task)
            self.follow()
            return None, None
        assert newest
        return task, answer

    def why_lost(self, task):
        if task is not None and task.place == "completed":
            return AlreadyCompleted
        return LeaseTaken if task and task.place == "pending" and task.holder else LeaseNotHeld

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), handle=handles)
    def ack(self, data, handle):
        self.acks += 1
        task, _ = self.use(data, lambda lease: self.queues[handle].ack(lease, self.acks))
        if task:
            task.place, task.result = "completed", self.acks
            task.attempts += 1

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), handle=handles, delay=delays)
    def nack(self, data, handle, delay):
        queue = self.queues[handle]
        task, outcome = self.use(data, lambda lease: queue.nack(lease, "no", delay=delay))
        if task:
            self.give_back(task, "error", delay)
            assert outcome is (Outcome.FAILED if task.place == "failed" else Outcome.RETRY)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), handle=handles, delay=delays)
    def release(self, data, handle, delay):
        task, _ = self.use(data, lambda lease: self.queues[handle].release(lease, delay=delay))
        if task:
            task.holder, task.not_before = None, self.clock.wall() + delay

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), handle=handles)
    def heartbeat(self, data, handle):
        task, renewed = self.use(data, self.queues[handle].heartbeat)
        if task:
            assert renewed.fence == task.fence
            task.deadline = self.clock.boot() + LEASE_SECONDS
            # Both the lease as it was and the renewed one are the newest.
            task.holder = renewed

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), handle=handles)
    def bury_held(self, data, handle):
        task, _ = self.use(data, lambda lease: self.queues[handle].bury(lease, "bad"))
        if task:
            self.fail(task, "buried")

    @rule(handle=handles, task_id=ids, held=st.booleans())
    def fail_by_id(self, handle, task_id, held):
        self.sweep(handle)
        task = self.tasks.get(task_id)
        try:
            (self.queues[handle].cancel if held else self.queues[handle].bury)(task_id, "bad")
        except TaskNotFound:
            assert task is None
        except WrongState:
            assert task.place != "pending" or (task.holder and not held)
        else:
            assert task.place == "pending"
            assert held or not task.holder
            self.fail(task, "cancelled" if held else "buried")

    @rule(handle=handles, task_id=ids)
    def requeue(self, handle, task_id):
        self.sweep(handle)
        task = self.tasks.get(task_id)
        try:
            self.queues[handle].requeue(task_id)
        except TaskNotFound:
            assert task is None
        except WrongState:
            assert task.place != "failed"
        else:
            assert task.place == "failed"
            task.place, task.holder, task.attempts, task.not_before = "pending", None, 0, 0.0
            if task.expires_at < self.clock.wall():
                task.expires_at = float("inf")

    @rule(seconds=st.sampled_from(STEPS))
    def advance(self, seconds):
        self.clock.advance(seconds)

    @rule(handle=handles)
    def sweep(self, handle):
        over = [task for task in self.tasks.values() if self.lease_is_over(task)]
        report = self.queues[handle].sweep()
        for task in over:
            self.give_back(task, "crash")
        expired = [task for task in self.tasks.values() if self.life_is_over(task)]
        for task in expired:
            self.fail(task, "expired")
        assert report.expired_leases == len(over)

    @rule(handle=handles, paused=st.sampled_from([True, False, False]))
    def pause_or_resume(self, handle, paused):
        if paused:
            self.queues[handle].pause("a while")
        else:
            self.queues[handle].resume()
        self.paused = paused

    @rule(handle=handles, place=st.sampled_from(["completed", "failed"]))
    def purge(self, handle, place):
        self.sweep(handle)
        doomed = {i for i, task in self.tasks.items() if task.place == place}
        assert self.queues[handle].purge(place) == len(doomed)
        for task_id in doomed:
            del self.tasks[task_id]
            self.leases = [lease for lease in self.leases if lease.task_id != task_id]

    @rule(handle=handles)
    def reopen(self, handle):
        self.queues[handle].close()
        self.queues[handle] = self.engine.reopen()

    @rule(handle=handles)
    def look(self, handle):
        records = {record.task.id: record for record in self.queues[handle].list()}
        assert records.keys() == self.tasks.keys()
        for task_id, task in self.tasks.items():
            self.compare(records[task_id], task)
        stats = self.queues[handle].stats()
        states = [self.state(task) for task in self.tasks.values()]
        for state in ("ready", "delayed", "blocked", "leased", "completed", "failed"):
            assert getattr(stats, state) == states.count(state)
        stuck = [
            task
            for task in self.tasks.values()
            if self.state(task) == "blocked" and set(self.unmet(task).values()) - {"pending"}
        ]
        assert stats.stuck == len(stuck)
        assert stats.paused == self.paused
        holders = {lease.task_id for lease in self.queues[handle].leases()}
        assert holders == {i for i, task in self.tasks.items() if self.state(task) == "leased"}

    # What must hold after every verb

    @invariant()
    def the_records_are_as_modelled(self):
        self.follow()
        for queue in self.queues:
            for task_id in IDS:
                record = queue.get(task_id)
                assert (record is not None) == (task_id in self.tasks)
                if record is not None:
                    self.compare(record, self.tasks[task_id])

    def compare(self, record, task):
        assert record.state == self.state(task)
        assert record.result == task.result
        assert [error.kind for error in record.task.errors] == task.kinds
        if task.kinds and task.kinds[-1] in ("buried", "cancelled") and task.place == "failed":
            # Whether a delivery that was cut short counts is the engine's choice.
            assert record.task.attempts in (task.attempts, task.attempts + 1)
        else:
            assert record.task.attempts == task.attempts
        if task.place == "pending":
            assert dict(record.blocked_by) == self.unmet(task)
        if record.state in ("leased", "completed"):
            assert record.lease.fence == task.fence


def test_any_sequence_of_verbs_does_what_the_model_does(request, make_engine):
    machine = type("Machine", (Machine,), {"make_engine": staticmethod(make_engine)})
    # A server takes its time; what it adds to the store in memory is its own answers.
    examples = EXAMPLES.get(request.node.callspec.params["make_engine"], 80)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=50)
    )
