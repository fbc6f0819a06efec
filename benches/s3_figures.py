"""The figures of the s3 engine, and eight workers on one bucket beside the first design."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benches import s3_contest, s3_counts
from benches.figures import REPOSITORY, Figure, Plan
from benches.idle import status
from benches.stores import KEYS, REQUESTS, Parsers, Subjects, medians
from dfq.stores.s3 import S3Store
from tests.servers import clean_environment, settings, start

DESCRIPTION = (
    "a bucket on a server on this machine: `ministack` for what a client costs, "
    "`seaweedfs`, a real store, for the race; `memory`, in this process, where only requests count"
)
#: An idle worker has certified its bucket, swept and looked by then.
_STARTING_SECONDS = 15.0


def cpu_figures(plan: Plan) -> Iterator[Figure]:
    """What requests cost this process in CPU time, beside botocore's."""
    settings()
    with (
        tempfile.TemporaryDirectory() as folder,
        start("ministack", Path(folder)) as server,
        closing(S3Store(server.url("bench"))) as store,
    ):
        subjects = Subjects(server, store)
        subjects.fill()
        mine, bare = medians(subjects.put_dfq, subjects.put_botocore, REQUESTS)
        yield Figure(
            "CPU of a PUT of 300 bytes if absent, against a bare botocore PUT", "ministack",
            f"{mine / bare:.2f}x ({mine:,.0f} µs against {bare:,.0f} µs)", "≤ 1.2x",
            mine <= 1.2 * bare,
        )  # fmt: skip
        mine, bare = medians(subjects.list_dfq, subjects.list_botocore, 1)
        yield _cheaper(f"CPU of a LIST page of {KEYS:,} keys, request and all", mine, bare)
    parsers = Parsers()
    mine, bare = medians(parsers.dfq, parsers.botocore, 1)
    yield _cheaper(f"CPU of reading a LIST page of {KEYS:,} keys", mine, bare)


def _cheaper(what: str, mine: float, bare: float) -> Figure:
    return Figure(
        f"{what}, against botocore's", "ministack",
        f"{bare / mine:.1f}x cheaper ({mine / 1000:,.2f} ms against {bare / 1000:,.1f} ms)",
        "≥ 5x", bare >= 5 * mine,
    )  # fmt: skip


def idle_figures(plan: Plan) -> Iterator[Figure]:
    """A worker with nothing to do on a queue in a bucket."""
    with tempfile.TemporaryDirectory() as folder, start("ministack", Path(folder)) as server:
        seen = idle_megabytes(server.url("idle"))
    yield Figure(
        "idle worker on a bucket, memory (VmRSS)", "ministack", f"{seen:.1f} MB", "≤ 60 MB",
        seen <= 60,
    )  # fmt: skip


def idle_megabytes(url: str) -> float:
    """What an idle worker holds."""
    command = [sys.executable, "-m", "dfq", "worker", url, "--handler", "benches.idle:handle"]
    with tempfile.TemporaryFile() as log:
        worker = subprocess.Popen(
            command, cwd=REPOSITORY, stdout=log, stderr=log, env=clean_environment()
        )
        try:
            time.sleep(_STARTING_SECONDS)
            resident = status(Path(f"/proc/{worker.pid}/status"))["VmRSS"]
        except (OSError, KeyError) as error:
            worker.wait(10)
            log.seek(0)
            raise RuntimeError(f"the worker ended: {log.read().decode()}") from error
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(30)
    return resident / 1024


FIGURES = (cpu_figures, idle_figures, *s3_counts.FIGURES)


def contests(plan: Plan) -> list[s3_contest.Contest]:
    """Eight workers on one SeaweedFS, and one of ours alone."""
    alone = s3_contest.contest("seaweedfs", plan.bucket_tasks, plan.rounds, 1, ["dfq"])
    return [*s3_contest.contest("seaweedfs", plan.bucket_tasks, plan.rounds), *alone]


def contest_lines(found: list[s3_contest.Contest]) -> list[str]:
    """The race, as it stands on the page."""
    return [
        "## In a bucket",
        "",
        "Eight processes take, read and settle the tasks of one queue on one server, all on this",
        "machine; the designs in turns within one run, and dfq once more with one worker alone.",
        "*Races lost* is the part of all tries to take a task in which somebody else was faster.",
        "Requests are for each task, push included.",
        "The *first design* (`benches/s3_seed.py`) is conditional leases in plain boto3: list,",
        "shuffle, create the lease if it is absent, read; then delete both. It has no fence and",
        "keeps no record of what was done, which saves it the PUT of an ack.",
        "",
        *s3_contest.table(found),
    ]
