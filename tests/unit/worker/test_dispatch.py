"""Which handler gets which task, and what it is handed."""

from __future__ import annotations

import asyncio

import pytest

import dfq
from dfq.errors import HandlerError
from dfq.record import Filter
from dfq.worker.execution import command_handlers


def test_a_plain_function_gets_the_payload_and_its_return_is_the_result(queue, start):
    queue.push(21, id="a")
    assert start(queue, lambda payload: payload * 2, drain=True).ended() == 0
    assert queue.get("a").result == 42


def test_a_plain_function_may_ask_for_the_context(queue, start):
    queue.push({"x": 1}, id="a")
    start(queue, lambda ctx, payload: [ctx.task.id, ctx.attempt, payload], drain=True).ended()
    assert queue.get("a").result == ["a", 1, {"x": 1}]


def test_decorated_functions_get_their_arguments_each_its_own_tasks(queue, start):
    @queue.task
    def add(x: int, y: int = 0) -> int:
        return x + y

    @queue.task
    async def join(ctx: dfq.Context, *words: str) -> str:
        await asyncio.sleep(0)
        return f"{ctx.fence}:" + "".join(words)

    added, joined = add.push(1, y=2), join.push("a", "b")
    start(queue, add, join, drain=True).ended()
    assert queue.get(added.id).result == 3
    assert queue.get(joined.id).result == "1:ab"


def test_a_function_that_returns_an_awaitable_is_awaited(queue, start):
    async def later(payload):
        return payload + 1

    queue.push(1, id="a")
    start(queue, lambda payload: later(payload), drain=True).ended()
    assert queue.get("a").result == 2


def test_a_task_that_no_handler_is_named_for_is_never_claimed(queue, start):
    @queue.task
    def add(x: int) -> int:
        return x

    queue.push(1, id="other", name="subtract")
    queue.push(1, id="nameless")
    pushed = add.push(1)
    start(queue, add, drain=True).ended()
    assert queue.get(pushed.id).state == "completed"
    assert {queue.get(i).state for i in ("other", "nameless")} == {"ready"}
    assert queue.get("other").task.attempts == 0


def test_names_that_were_asked_for_go_to_the_plain_function(queue, start):
    queue.push(1, id="a", name="enrich")
    queue.push(1, id="b", name="other")
    start(queue, lambda payload: payload, drain=True, filter=Filter(names=("enrich",))).ended()
    assert (queue.get("a").state, queue.get("b").state) == ("completed", "ready")


def test_asking_for_names_without_a_handler_is_an_error(queue, start):
    @queue.task
    def add(x: int) -> int:
        return x

    with pytest.raises(HandlerError, match=r"no handler for tasks named 'enrich'.*add"):
        start(queue, add, filter=Filter(names=("enrich",)))


def test_a_payload_that_is_no_call_of_the_handler_is_buried(queue, start):
    @queue.task
    def add(x: int) -> int:
        return x

    queue.push([1], id="a", name="add")
    start(queue, add, drain=True).ended()
    record = queue.get("a")
    assert record.state == "failed"
    assert "no call of a decorated handler" in record.task.errors[-1].message


def test_a_program_takes_tasks_of_every_name(queue, start):
    queue.push({"a": 1}, id="a", name="anything")
    queue.push({"b": 1}, id="b")
    assert start(queue, handlers=command_handlers("cat"), drain=True).ended() == 0
    assert (queue.get("a").result, queue.get("b").result) == ({"a": 1}, {"b": 1})
