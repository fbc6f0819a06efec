"""The queues that are put side by side, each through its own public calls.

``fill`` pushes the tasks one after the other (or as the name says); ``open_drain`` opens the
queue in a worker and returns the loop that takes, reads and settles tasks until none is left.
Settings are each project's defaults unless the durability column says otherwise.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.seed_queue import SeedQueue

Payloads = list[dict[str, Any]]


@dataclass(frozen=True)
class Peer:
    """One contestant."""

    name: str
    durability: str
    fill: Callable[[Path, Payloads], None]
    open_drain: Callable[[Path, str], Callable[[], Iterator[int]]]
    note: str = ""
    #: False: it is made for one process only.
    shared: bool = True
    #: Greatest number of tasks; a peer that slows down with depth gets fewer, and it is said.
    most: int | None = None


# dfq


def fill_dfq(path: Path, tasks: Payloads) -> None:
    import dfq

    with dfq.open(path) as queue:
        for task in tasks:
            queue.push(task)


def fill_dfq_many(path: Path, tasks: Payloads) -> None:
    import dfq

    with dfq.open(path) as queue:
        queue.push_many([queue.new_task(task) for task in tasks])


def open_dfq(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    import dfq

    queue = dfq.open(path)

    def drain() -> Iterator[int]:
        while (lease := queue.claim(worker)) is not None:
            number = lease.task.payload["n"]
            queue.ack(lease)
            yield number

    return drain


def open_dfq_many(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    import dfq

    queue = dfq.open(path)

    def drain() -> Iterator[int]:
        while leases := queue.claim_many(100, worker):
            for lease in leases:
                number = lease.task.payload["n"]
                queue.ack(lease)
                yield number

    return drain


# The first design


def fill_seed(path: Path, tasks: Payloads) -> None:
    queue = SeedQueue(path)
    for task in tasks:
        queue.push(f"task-{task['n']:08d}", task)


def _drain_seed(queue: SeedQueue, worker: str) -> Iterator[int]:
    while (lease := queue.claim(worker)) is not None:
        queue.ack(lease)
        yield lease.payload["n"]


def open_seed(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    queue = SeedQueue(path)
    return lambda: _drain_seed(queue, worker)


def open_seed_rescan(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    queue = SeedQueue(path, rescan=True)
    return lambda: _drain_seed(queue, worker)


# dirq


def fill_dirq(path: Path, tasks: Payloads) -> None:
    from dirq.QueueSimple import QueueSimple

    queue = QueueSimple(str(path))
    for task in tasks:
        queue.add(json.dumps(task))


def open_dirq(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    from dirq.QueueSimple import QueueSimple

    queue = QueueSimple(str(path))

    def drain() -> Iterator[int]:
        name = queue.first()
        while name:
            if queue.lock(name):
                number = json.loads(queue.get(name))["n"]
                queue.remove(name)
                yield number
            name = queue.next()

    return drain


# huey


def _huey(path: Path, kind: str) -> Any:
    import huey

    if kind == "file":
        app = huey.FileHuey("bench", path=str(path / "huey"))
    else:
        app = huey.SqliteHuey("bench", filename=str(path / "huey.db"))

    @app.task()
    def work(task: dict[str, Any]) -> None:
        pass

    return app, work


def _fill_huey(path: Path, tasks: Payloads, kind: str) -> None:
    _, work = _huey(path, kind)
    for task in tasks:
        work(task)


def _open_huey(path: Path, kind: str) -> Callable[[], Iterator[int]]:
    app, _ = _huey(path, kind)

    def drain() -> Iterator[int]:
        while (task := app.dequeue()) is not None:
            app.execute(task)
            yield task.args[0]["n"]

    return drain


def fill_huey_file(path: Path, tasks: Payloads) -> None:
    _fill_huey(path, tasks, "file")


def open_huey_file(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    return _open_huey(path, "file")


def fill_huey_sqlite(path: Path, tasks: Payloads) -> None:
    _fill_huey(path, tasks, "sqlite")


def open_huey_sqlite(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    return _open_huey(path, "sqlite")


# litequeue


def fill_litequeue(path: Path, tasks: Payloads) -> None:
    from litequeue import LiteQueue

    queue = LiteQueue(path / "litequeue.db")
    for task in tasks:
        queue.put(json.dumps(task))
    queue.conn.close()


def open_litequeue(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    from litequeue import LiteQueue

    queue = LiteQueue(path / "litequeue.db", timeout=30)

    def drain() -> Iterator[int]:
        while (message := queue.pop()) is not None:
            number = json.loads(message.data)["n"]
            queue.done(message.message_id)
            yield number

    return drain


# persist-queue


def fill_persist_file(path: Path, tasks: Payloads) -> None:
    import persistqueue

    queue = persistqueue.Queue(str(path / "persist"), tempdir=str(path))
    for task in tasks:
        queue.put(task)


def open_persist_file(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    import persistqueue

    queue = persistqueue.Queue(str(path / "persist"), tempdir=str(path))

    def drain() -> Iterator[int]:
        while queue.qsize():
            task = queue.get(block=False)
            queue.task_done()
            yield task["n"]

    return drain


def fill_persist_sqlite(path: Path, tasks: Payloads) -> None:
    import persistqueue

    queue = persistqueue.SQLiteAckQueue(str(path / "persist"), multithreading=True)
    for task in tasks:
        queue.put(task)
    queue.close()


def open_persist_sqlite(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    import persistqueue

    queue = persistqueue.SQLiteAckQueue(str(path / "persist"), multithreading=True)

    def drain() -> Iterator[int]:
        while True:
            try:
                message = queue.get(block=False, raw=True)
            except persistqueue.Empty:
                return
            queue.ack(id=message["pqid"])
            yield message["data"]["n"]

    return drain


# SQLite without a library: what a queue on it could reach


def _sqlite(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path / "raw.db", isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS task "
        "(id INTEGER PRIMARY KEY, state INTEGER NOT NULL, worker TEXT, payload TEXT NOT NULL)"
    )
    connection.execute("CREATE INDEX IF NOT EXISTS ready ON task (id) WHERE state = 0")
    return connection


def _fill_sqlite(path: Path, tasks: Payloads, batch: int) -> None:
    connection = _sqlite(path)
    for start in range(0, len(tasks), batch):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO task (state, payload) VALUES (0, ?)",
            [(json.dumps(task),) for task in tasks[start : start + batch]],
        )
        connection.execute("COMMIT")
    connection.close()


def _open_sqlite(path: Path, worker: str, batch: int) -> Callable[[], Iterator[int]]:
    connection = _sqlite(path)
    take = (
        "UPDATE task SET state = 1, worker = ? WHERE id IN "
        "(SELECT id FROM task WHERE state = 0 ORDER BY id LIMIT ?) RETURNING id, payload"
    )

    def drain() -> Iterator[int]:
        while rows := connection.execute(take, (worker, batch)).fetchall():
            numbers = [json.loads(text)["n"] for _, text in rows]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "UPDATE task SET state = 2 WHERE id = ?", [(row[0],) for row in rows]
            )
            connection.execute("COMMIT")
            yield from numbers

    return drain


def fill_sqlite(path: Path, tasks: Payloads) -> None:
    _fill_sqlite(path, tasks, 1)


def open_sqlite(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    return _open_sqlite(path, worker, 1)


def fill_sqlite_many(path: Path, tasks: Payloads) -> None:
    _fill_sqlite(path, tasks, 100)


def open_sqlite_many(path: Path, worker: str) -> Callable[[], Iterator[int]]:
    return _open_sqlite(path, worker, 100)


DFQ = Peer("dfq", "fsync per push", fill_dfq, open_dfq)
DFQ_MANY = Peer("dfq, by 100", "fsync per push_many", fill_dfq_many, open_dfq_many)
SEED = Peer("first design, listed once", "none", fill_seed, open_seed, "no fence, no retry")
SEED_RESCAN = Peer(
    "first design, as its origin", "none", fill_seed, open_seed_rescan,
    "lists before every claim", most=2_000,
)  # fmt: skip

PEERS = (
    DFQ,
    DFQ_MANY,
    SEED,
    SEED_RESCAN,
    Peer("dirq QueueSimple", "none", fill_dirq, open_dirq, "no ack, no retry, no heartbeat"),
    Peer("huey FileHuey", "none", fill_huey_file, open_huey_file, "no ack; one lock", most=2_000),
    Peer("huey SqliteHuey", "fsync", fill_huey_sqlite, open_huey_sqlite, "no ack", most=5_000),
    Peer("litequeue", "WAL, normal", fill_litequeue, open_litequeue, most=5_000),
    Peer(
        "persist-queue Queue", "fsync per 100", fill_persist_file, open_persist_file,
        "one process only", shared=False,
    ),
    Peer(
        "persist-queue SQLiteAckQueue", "fsync", fill_persist_sqlite, open_persist_sqlite,
        most=5_000,
    ),
    Peer("raw SQLite", "WAL, normal", fill_sqlite, open_sqlite, "no library: its limit"),
    Peer(
        "raw SQLite, by 100", "WAL, normal", fill_sqlite_many, open_sqlite_many,
        "no library: its limit",
    ),
)  # fmt: skip
