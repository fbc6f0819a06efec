"""Every error dfq raises. One tree; each class says what the caller should do.

An error also inherits the builtin a Python programmer would expect, so
``except ValueError`` and ``except DfqError`` both do what they look like.
"""

from __future__ import annotations

from collections.abc import Iterable


class DfqError(Exception):
    """The base of every error raised by dfq."""

    #: What the command line exits with when this error reaches it.
    exit_code = 1


class InvalidTask(DfqError, ValueError):
    """The task as given can't be stored: mend the id, the payload or the option it names."""

    exit_code = 65


class InvalidPolicy(DfqError, ValueError):
    """queue.json or a policy option is wrong: mend the key it names."""

    exit_code = 78


class InvalidConfig(DfqError, ValueError):
    """dfq.toml, a DFQ_* variable or an option is wrong: mend the key it names."""

    exit_code = 78


class InvalidURL(DfqError, ValueError):
    """No engine answers to this queue URL: use a path, file:///…, s3://… or
    memory://name."""

    exit_code = 64


class DuplicateTask(DfqError, ValueError):
    """A task with this id is there already; nothing was changed."""

    exit_code = 65

    def __init__(self, task_id: str, state: str) -> None:
        super().__init__(
            f"task {task_id!r} exists already ({state}); nothing was changed. "
            "Choose another id, or requeue it if it failed."
        )
        self.task_id = task_id
        self.state = state


class DependencyCycle(DfqError, ValueError):
    """The task would wait for itself; leave one of the dependencies out."""

    exit_code = 65


class TaskNotFound(DfqError, LookupError):
    """No task has this id; `dfq ls` lists those there are."""

    exit_code = 66


class WrongState(DfqError, RuntimeError):
    """The task is there, but not in a state that allows this verb."""

    exit_code = 69


class LeaseLost(DfqError, RuntimeError):
    """This lease is no longer the newest on its task: stop the work, its outcome is refused."""

    exit_code = 75


class LeaseTaken(LeaseLost):
    """Somebody else holds the task now, under a newer fence."""


class LeaseNotHeld(LeaseLost):
    """Nobody holds the task: the lease ended and the task waits for its next delivery."""


class AlreadyCompleted(LeaseLost):
    """The task is completed; the message says by which lease."""


class QueueBusy(DfqError, TimeoutError):
    """A lock in the queue was held for too long; the message says by whom. Try again."""

    exit_code = 75


class QueueUnavailable(DfqError, OSError):
    """The queue can't be reached or written: full or read-only disk, folder gone. Nothing changed
    unless the message says so."""

    exit_code = 74


class DiskFull(QueueUnavailable):
    """No space is left for the queue. Free some; what was pushed is safe."""


class StoreUnsure(QueueUnavailable):
    """The store gave no answer, so nobody knows whether the write was done: read the key and
    compare before trying again."""


class StoreBusy(QueueBusy):
    """The store asked to come back later, and went on asking. Nothing was changed; try again."""


class StoreRefused(QueueUnavailable, PermissionError):
    """The store won't serve this caller: credentials, permissions, bucket, region, clock or TLS.
    The message says what to mend; nothing was changed."""

    exit_code = 77


class StoreNotSafe(QueueUnavailable):
    """The store breaks a promise that a queue is built on, such as one winner per key. The message
    says which; use another store."""

    exit_code = 78

    def __init__(self, store: str, problems: Iterable[str]) -> None:
        self.store = store
        self.problems = tuple(problems)
        super().__init__(
            f"{store} is not safe for a queue: {'; '.join(self.problems)}. Use a store whose "
            "conditional writes are atomic, such as AWS S3 or SeaweedFS, or mend this one and "
            "check it with `dfq doctor`. No task was touched."
        )


class NoIndex(DfqError, LookupError):
    """There is no index at this place; `dfq index create` makes one."""

    exit_code = 66


class InvalidIndex(DfqError, ValueError):
    """datapackage.json is wrong, or a change of it is refused: mend what the message names."""

    exit_code = 78


class InvalidRecord(DfqError, ValueError):
    """A record does not fit the columns of its index: mend the field it names."""

    exit_code = 65


class ShardDamaged(DfqError, ValueError):
    """A shard of an index can't be read; it was left as it is. The message says where."""

    exit_code = 65


class LayoutTooNew(DfqError, RuntimeError):
    """A newer dfq made this queue. Upgrade dfq to open it."""

    exit_code = 78


class HandlerError(DfqError, ImportError):
    """The handler can't be loaded: mend the name, or what its module raises at import."""

    exit_code = 78


class RetryLater(DfqError):
    """Raised by a handler: put the task back for ``delay`` seconds without counting a failure."""

    def __init__(self, message: str = "", *, delay: float | None = None) -> None:
        super().__init__(message)
        self.delay = delay


class Reject(DfqError):
    """Raised by a handler: this task can never work, bury it now instead of trying again."""
