"""Functions as tasks."""

from __future__ import annotations

import pytest

import dfq
from dfq.errors import HandlerError
from dfq.handler import Context, Handler, call_arguments, takes_context, task
from dfq.testing import memory_queue


def test_calling_a_handler_calls_the_function_and_pushes_nothing():
    queue = memory_queue()

    @queue.task
    def double(x: int) -> int:
        return 2 * x

    assert double(21) == 42
    assert queue.stats().pending == 0


def test_push_stores_the_call_under_the_handlers_name():
    queue = memory_queue()

    @queue.task
    def enrich(company: str, *, deep: bool = False) -> None: ...

    pushed = enrich.push("acme", deep=True)
    assert pushed.name == "enrich"
    assert pushed.payload == {"args": ["acme"], "kwargs": {"deep": True}}


def test_the_decorators_options_are_those_of_every_task():
    queue = memory_queue()

    @queue.task(name="shop.enrich", priority="high", labels=["web"], project="p", max_attempts=2)
    def enrich(x: int) -> None: ...

    pushed = enrich.push(1)
    assert (pushed.name, pushed.priority, pushed.labels) == ("shop.enrich", 100, ("web",))
    assert (pushed.project, pushed.max_attempts) == ("p", 2)


def test_options_of_one_call_win_over_the_decorators():
    queue = memory_queue()

    @queue.task(priority="high", project="p")
    def enrich(x: int) -> None: ...

    pushed = enrich.options(id="one", priority="low", delay=60).push(1)
    assert (pushed.id, pushed.priority, pushed.project) == ("one", 0, "p")
    assert queue.get("one").state == "delayed"
    assert enrich.push(1).priority == 100


def test_new_task_is_for_push_many():
    queue = memory_queue()

    @queue.task
    def enrich(x: int) -> None: ...

    queue.push_many([enrich.new_task(1), enrich.options(id="two").new_task(2)])
    assert queue.get("two").task.payload == {"args": [2], "kwargs": {}}
    assert queue.stats().ready == 2


def test_pushing_a_handler_without_a_queue_says_what_to_do():
    @task
    def enrich(x: int) -> None: ...

    with pytest.raises(HandlerError, match=r"'enrich' belongs to no queue.*bind\(queue\)"):
        enrich.push(1)


def test_bind_makes_another_handler_and_leaves_the_first_alone():
    queue, other = memory_queue(), memory_queue()

    @dfq.task(priority="high", timeout_seconds=3)
    def enrich(x: int) -> None: ...

    bound = enrich.bind(queue)
    enrich.bind(other)
    bound.push(1)
    assert (queue.stats().ready, other.stats().ready) == (1, 0)
    assert (bound.name, bound.timeout_seconds, enrich.queue) == ("enrich", 3, None)


def test_an_unknown_option_of_the_decorator_names_the_nearest():
    with pytest.raises(HandlerError, match="no option 'priorty'; did you mean 'priority'"):
        task(priorty="high")


def test_decorating_something_else_than_a_function_is_refused():
    with pytest.raises(HandlerError, match="not str; options are given by name"):
        task("enrich")


def test_a_time_limit_of_zero_is_refused():
    with pytest.raises(HandlerError, match="timeout_seconds is 0"):
        task(timeout_seconds=0)(lambda: None)


def test_a_handler_keeps_the_functions_name_and_words():
    @task
    def enrich() -> None:
        """Find out more."""

    assert enrich.__name__ == "enrich"
    assert enrich.__doc__ == "Find out more."


def test_a_handler_knows_whether_it_is_a_coroutine():
    async def later() -> None: ...

    assert Handler(later).is_async
    assert not Handler(lambda: None).is_async


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda ctx, x: None, True),
        (lambda context: None, True),
        (lambda x, ctx: None, False),
        (lambda: None, False),
        (lambda *ctx: None, False),
        (lambda *, ctx: None, False),
        (print, False),
    ],
)
def test_a_first_parameter_called_ctx_or_context_is_the_context(function, expected):
    assert takes_context(function) is expected


def test_a_first_parameter_annotated_context_is_the_context():
    def as_text(job: Context, x: int) -> None: ...
    def qualified(job: dfq.Context, x: int) -> None: ...
    def other(job: int, x: Context) -> None: ...

    def as_type(job, x): ...

    as_type.__annotations__["job"] = dfq.Context
    assert takes_context(as_text)
    assert takes_context(qualified)
    assert takes_context(as_type)
    assert not takes_context(other)


@pytest.mark.parametrize("payload", [1, None, [1], {"args": 1}, {"x": 1}, {"kwargs": [1]}])
def test_a_payload_that_is_no_call_is_refused(payload):
    with pytest.raises(dfq.InvalidTask, match="no call of a decorated handler"):
        call_arguments(payload)
