"""A small program that uses dfq the way people do. It is type-checked, never run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

import dfq

queue = dfq.open("/srv/q")


@queue.task(name="resize", priority="high", max_attempts=3)
def resize(path: str, width: int = 100) -> str:
    return f"{path} at {width}"


@dfq.task
async def fetch(url: str) -> bytes:
    return url.encode()


def by_hand() -> None:
    task = queue.push({"a": [1, 2]}, labels=["x"], delay=5.0)
    assert_type(task, dfq.Task)
    lease = queue.claim("me", filter=dfq.Filter(project="p"))
    if lease is not None:
        assert_type(lease, dfq.Lease)
        assert_type(lease.fence, int)
        lease = queue.heartbeat(lease)
        queue.ack(lease, {"done": True})
    assert_type(queue.push_many(queue.new_task(n) for n in range(3)), list[dfq.Pushed])
    assert_type(queue.stats().ready, int)


def by_handler() -> None:
    assert_type(resize("a.png"), str)
    assert_type(resize.push("a.png", width=3), dfq.Task)
    resize.push("a.png", width="wide")  # type: ignore[arg-type]


def with_context(ctx: dfq.Context, payload: dict[str, int]) -> Iterator[int]:
    ctx.progress(0.5, "half")
    yield ctx.fence


def by_index() -> None:
    with dfq.Index.create("/srv/shops", ["domain", "visits:integer"]) as index:
        index.put({"domain": "example.com", "visits": 3})
        assert_type(index.get("example.com"), dict[str, str] | None)
        assert_type(index.compile().files, int)
        assert_type(list(index.scan()), list[dict[str, str]])


def misspelt() -> None:
    dfq.opne("/srv/q")  # type: ignore[attr-defined]
