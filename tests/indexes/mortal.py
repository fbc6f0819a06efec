"""A store whose user dies at a call: before it, in the middle of it, or right after it."""

from __future__ import annotations

from typing import Literal

from dfq.store import Store

CALLS = frozenset(
    {
        "create",
        "replace",
        "put",
        "read",
        "list",
        "delete",
        "delete_many",
        "fetch",
        "create_from",
        "replace_from",
    }
)
When = Literal["before", "amid", "after"]


class Died(BaseException):
    """The process is gone: nothing more of it reaches the store."""


class MortalStore:
    """The store as seen by a process that dies at its call number ``at``, counted from 1."""

    def __init__(self, store: Store, at: int = 0, when: When = "before") -> None:
        self._store = store
        self._at = at
        self._when = when
        self.calls: list[str] = []
        self.dead = False

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name not in CALLS:
            return found

        def call(*args, **options):
            if self.dead:
                raise Died
            self.calls.append(name)
            if len(self.calls) != self._at:
                return found(*args, **options)
            self.dead = True
            if self._when == "amid" and name == "delete_many":
                keys = list(args[0])
                found(keys[: len(keys) // 2])
            if self._when == "after":
                found(*args, **options)
            raise Died

        return call
