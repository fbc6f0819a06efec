"""What a queue costs, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dfq.cli.output import duration, styled
from dfq.payload import JSON

if TYPE_CHECKING:
    from dfq.cost import Bill
    from dfq.queue import Queue

#: What is told of a queue in a folder or in memory.
FREE = "requests cost nothing here: only a queue in a bucket is paid for by the request"


def bill_of(queue: Queue) -> Bill | None:
    """What the queue's requests cost; None if they cost nothing."""
    from dfq.config import load_prices
    from dfq.cost import Metered, bill

    prices = load_prices()
    return bill(queue.usage(), prices) if isinstance(queue, Metered) else None


def cost_lines(bill: Bill | None) -> list[str]:
    """The bill as lines for people."""
    if bill is None:
        return [FREE]
    lines = [
        styled("cost", bold=True)
        + f" of the last {duration(bill.until - bill.since)}, "
        + f"as told by {bill.processes:,} process{'' if bill.processes == 1 else 'es'}:"
    ]
    per_task = bill.requests_per_task
    for kind, count in bill.requests.items():
        dollars = money(bill.dollars_by_kind[kind])
        each = "" if per_task is None else f"  {per_task[kind]:>8.3f} a task"
        lines.append(f"{count:>12,} {kind:<10} {dollars:>12}{each}")
    total = sum(bill.requests.values())
    lines.append(f"{total:>12,} {'in all':<10} {money(bill.dollars):>12}")
    lines.append(f"{bill.completed:>12,} completed")
    million = bill.dollars_per_million_tasks
    if million is None:
        return lines
    lines.append(f"a million such tasks cost {money(million)}")
    lines.append(
        f"SQS would have cost {money(bill.sqs_dollars)} for these tasks one by one, "
        f"{money(bill.sqs_batched_dollars)} by tens"
    )
    return lines


def cost_json(bill: Bill | None) -> dict[str, JSON]:
    """The bill for programs; money in dollars."""
    if bill is None:
        return {"priced": False}
    return {
        "priced": True,
        "since": bill.since,
        "until": bill.until,
        "processes": bill.processes,
        "pushed": bill.pushed,
        "claimed": bill.claimed,
        "completed": bill.completed,
        "requests": dict(bill.requests),
        "requests_per_task": bill.requests_per_task,
        "dollars_by_kind": bill.dollars_by_kind,
        "dollars": bill.dollars,
        "dollars_per_million_tasks": bill.dollars_per_million_tasks,
        "sqs_dollars": bill.sqs_dollars,
        "sqs_batched_dollars": bill.sqs_batched_dollars,
    }


def money(dollars: float) -> str:
    """Dollars, with as many digits as a small sum needs to be one."""
    return f"${dollars:,.2f}" if dollars >= 1 or not dollars else f"${dollars:.6f}"
