"""Eight workers on one bucket, beside the first design: ``python -m benches.s3_contest [tasks]``.

Both have the same server in the same run, in turns, each time with a fresh prefix.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.payloads import payloads
from benches.processes import Crew
from benches.s3_seed import SeedBucketQueue
from tests.servers import ACCESS_KEY, BUCKET, SECRET_KEY, settings, start

WORKERS = 8


@dataclass(frozen=True)
class Contest:
    """One contestant with so many workers: medians of the rounds."""

    name: str
    server: str
    workers: int
    tasks: int
    per_second: float
    #: Of all tries to take a task, the part in which somebody else was faster.
    lost_share: float
    #: Requests by kind for each task, push included.
    requests: dict[str, float]
    lost: int
    twice: int
    failed: str = ""


# Where a queue is stands in a file of the folder that the workers are given; they put their counts
# beside it.


def _note(folder: Path, name: str, requests: dict[str, int], tries: int, lost: int) -> None:
    counts = {"requests": dict(requests), "tries": tries, "lost": lost}
    (folder / f"{name}.json").write_text(json.dumps(counts))


def _url(folder: Path) -> str:
    return (folder / "url").read_text()


def fill_dfq(folder: Path, tasks: list[dict[str, Any]]) -> dict[str, int]:
    import dfq

    with dfq.open(_url(folder)) as queue:
        # A bucket is put to the test once, not for every queue in it.
        queue.purge()
        before: Counter[str] = Counter(queue.store.requests.snapshot())  # type: ignore[attr-defined]
        queue.push_many([queue.new_task(task) for task in tasks])
        after: Counter[str] = Counter(queue.store.requests.snapshot())  # type: ignore[attr-defined]
    return dict(after - before)


def open_dfq(folder: Path, worker: str) -> Callable[[], Iterator[int]]:
    import dfq
    from dfq.store import Exists

    queue: Any = dfq.open(_url(folder))
    create = queue.store.create
    counts = Counter[str]()

    def counted(key: str, body: bytes) -> str:
        is_lease = key.endswith("/lease.json")
        counts["tries"] += is_lease
        try:
            etag: str = create(key, body)
        except Exists:
            counts["lost"] += is_lease
            raise
        return etag

    queue.store.create = counted

    def drain() -> Iterator[int]:
        while (lease := queue.claim(worker)) is not None:
            number = lease.task.payload["n"]
            queue.ack(lease)
            yield number
        requests = queue.store.requests.snapshot()
        _note(folder, worker, requests, counts["tries"], counts["lost"])

    return drain


def _seed(folder: Path, *, rescan: bool = False) -> SeedBucketQueue:
    import boto3
    from botocore.config import Config

    where = json.loads(_url(folder))
    client = boto3.client(
        "s3",
        endpoint_url=where["endpoint"],
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(s3={"addressing_style": "path"}),
    )
    return SeedBucketQueue(client, BUCKET, where["prefix"], rescan=rescan)


def fill_seed(folder: Path, tasks: list[dict[str, Any]]) -> dict[str, int]:
    queue = _seed(folder)
    for task in tasks:
        queue.push(f"task-{task['n']:08d}", task)
    return dict(queue.requests)


def open_seed(folder: Path, worker: str) -> Callable[[], Iterator[int]]:
    return _drain_seed(folder, worker, _seed(folder))


def open_rescanning_seed(folder: Path, worker: str) -> Callable[[], Iterator[int]]:
    return _drain_seed(folder, worker, _seed(folder, rescan=True))


def _drain_seed(folder: Path, worker: str, queue: SeedBucketQueue) -> Callable[[], Iterator[int]]:
    def drain() -> Iterator[int]:
        while (taken := queue.claim(worker)) is not None:
            task_id, payload = taken
            queue.ack(task_id)
            yield payload["n"]
        tries = queue.requests["put"]
        _note(folder, worker, queue.requests, tries, queue.races_lost)

    return drain


CONTESTANTS = {
    "dfq": (fill_dfq, open_dfq),
    "first design, listed once": (fill_seed, open_seed),
    "first design, lists before every claim": (fill_seed, open_rescanning_seed),
}


def contest(
    server_name: str,
    tasks: int,
    rounds: int,
    workers: int = WORKERS,
    names: Iterable[str] = CONTESTANTS,
) -> list[Contest]:
    """These contestants (or all), in turns, on one server."""
    found: dict[str, list[Contest]] = {name: [] for name in names}
    settings()
    with (
        tempfile.TemporaryDirectory() as base,
        start(server_name, Path(base) / "server") as server,
    ):
        for turn in range(rounds):
            for number, name in enumerate(found):
                fill, opener = CONTESTANTS[name]
                prefix = f"contest-{turn}-{number}"
                folder = Path(base) / prefix
                folder.mkdir()
                where = json.dumps({"endpoint": server.endpoint, "prefix": prefix})
                url = server.url(prefix, timeout=100)
                (folder / "url").write_text(url if name == "dfq" else where)
                pushed = fill(folder, payloads(tasks))
                drained = Crew(opener, folder, workers).run(tasks)
                counts = [json.loads(one.read_text()) for one in folder.glob("worker-*.json")]
                requests = Counter(pushed)
                for one in counts:
                    requests.update(one["requests"])
                tries = sum(one["tries"] for one in counts)
                lost = sum(one["lost"] for one in counts)
                found[name].append(
                    Contest(
                        name=name,
                        server=server_name,
                        workers=workers,
                        tasks=tasks,
                        per_second=drained.per_second,
                        lost_share=lost / tries if tries else 0.0,
                        requests={kind: count / tasks for kind, count in requests.items()},
                        lost=drained.lost,
                        twice=drained.twice,
                        failed=drained.failed,
                    )
                )
    return [_median(results) for results in found.values()]


def _median(results: list[Contest]) -> Contest:
    kinds = ("put", "get", "list", "delete")
    first = results[0]
    return Contest(
        name=first.name,
        server=first.server,
        workers=first.workers,
        tasks=first.tasks,
        per_second=statistics.median(one.per_second for one in results),
        lost_share=statistics.median(one.lost_share for one in results),
        requests={
            kind: statistics.median(one.requests.get(kind, 0.0) for one in results)
            for kind in kinds
        },
        lost=max(one.lost for one in results),
        twice=max(one.twice for one in results),
        failed=next((one.failed for one in results if one.failed), ""),
    )


def table(contests: list[Contest]) -> list[str]:
    """The contest in Markdown."""
    names = "queue server workers tasks tasks/s races_lost PUT GET LIST DELETE lost twice"
    heads = [name.replace("_", " ") for name in names.split()]
    lines = [
        "| " + " | ".join([*heads, ""]) + "|",
        "|---|---|" + "--:|" * (len(heads) - 2) + "---|",
    ]
    for one in contests:
        each = [f"{one.requests[kind]:.3f}" for kind in ("put", "get", "list", "delete")]
        cells = [one.name, one.server, str(one.workers), f"{one.tasks:,}", f"{one.per_second:,.0f}"]
        cells += [f"{one.lost_share:.1%}", *each, str(one.lost), str(one.twice)]
        note = f"failed: {one.failed[:80]}" if one.failed else ""
        lines.append("| " + " | ".join([*cells, note]) + " |")
    return lines


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    print(*table(contest("seaweedfs", count, rounds=1)), sep="\n")
