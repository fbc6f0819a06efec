"""`dfq init`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dfq.cli.options import (
    DURATION,
    debug_option,
    json_option,
    queue_argument,
    queue_option,
)
from dfq.cli.options import command as dfq_command
from dfq.cli.output import json_line, line

if TYPE_CHECKING:
    from dfq.cli.policy_file import Place

_RETRY = ("base_seconds", "cap_seconds", "factor")


@dfq_command(
    "dfq init mail --max-attempts 3",
    "dfq init thumbnails --lease 30s --finished drop --finished-after 1d",
    "dfq init jobs --update --retry-base 10s --retry-cap 1h",
)
@queue_argument
@queue_option
@click.option("--max-attempts", type=int, metavar="N", help="Deliveries before a task fails.")
@click.option("--lease", "lease_seconds", type=DURATION, help="A lease without heartbeat lives.")
@click.option("--heartbeat", "heartbeat_seconds", type=DURATION, help="Workers renew leases.")
@click.option("--retry-base", "base_seconds", type=DURATION, help="Wait after a first failure.")
@click.option("--retry-cap", "cap_seconds", type=DURATION, help="The longest wait.")
@click.option("--retry-factor", "factor", type=float, help="How the wait grows: 2 doubles it.")
@click.option("--max-payload", "max_payload_bytes", type=int, metavar="BYTES", help="Per task.")
@click.option("--max-result", "max_result_bytes", type=int, metavar="BYTES", help="Per task.")
@click.option(
    "--finished",
    type=click.Choice(["keep", "archive", "drop"]),
    help="What the sweeper does with completed tasks.",
)
@click.option("--finished-after", "finished_after_seconds", type=DURATION, help="And when: 7d.")
@click.option("--safety-poll", "safety_poll_seconds", type=DURATION, help="Idle workers look.")
@click.option(
    "--layout", type=click.Choice(["sharded", "flat"]), help="256 folders of tasks, or one."
)
@click.option("--update", is_flag=True, help="Change the policy of a queue that is there.")
@json_option
@debug_option
def command(
    queue: str | None,
    queue_option: str | None,
    layout: str | None,
    update: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Make a queue and choose its policy.

    Writes queue.json into the queue's folder or bucket, with every setting, so that it can be
    edited. A queue needs no such file: pushing into a folder is enough, and the defaults hold.
    Running workers go by a changed policy when they are started again.
    """
    from dfq.cli.locate import only_queue
    from dfq.cli.policy_file import write_policy

    url = only_queue(queue, queue_option)
    given = {key: value for key, value in settings.items() if value is not None}
    retry = {key: given.pop(key) for key in _RETRY if key in given}
    if retry:
        given["retry"] = retry
    with _place(url, layout) as place:
        policy = write_policy(place, given, layout, update)
        if as_json:
            json_line({"queue": url, **policy.to_json()})
        else:
            line(f"wrote {place.name}")


@contextmanager
def _place(url: str, layout: str | None) -> Iterator[Place]:
    """Where the queue's policy is kept, while the block lasts."""
    from pathlib import Path

    import dfq
    from dfq.cli.locate import local_folder
    from dfq.cli.policy_places import InFolder, InStore
    from dfq.policy import Policy

    folder = local_folder(url)
    if folder is not None:
        yield InFolder(Path(folder))
        return
    # With a policy at hand the one that is there, perhaps a damaged one, is not read.
    with dfq.open(url, policy=Policy()) as opened:
        store = getattr(opened, "store", None)
        if store is None:
            raise click.UsageError(f"{url} is no folder and no bucket, so it has no queue.json")
        if layout == "flat":
            raise click.UsageError("--layout flat is for folders; a bucket is always sharded")
        yield InStore(store, opened.chance)
