"""Finding handlers by name, and saying clearly what is wrong when they can't be found."""

from __future__ import annotations

import sys
import textwrap

import pytest

from dfq.errors import HandlerError
from dfq.record import EVERYTHING, Filter
from dfq.worker.execution import command_handlers
from dfq.worker.handlers import handler_set, load_handlers


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module into the working directory; its name is not taken by an earlier test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made = []

    def write(source, name="dfq_test_tasks"):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        made.append(name)
        return name

    yield write
    for name in made:
        sys.modules.pop(name, None)


def problem(*targets):
    with pytest.raises(HandlerError) as caught:
        load_handlers(*targets)
    return str(caught.value)


def test_a_function_is_loaded_from_the_working_directory(module):
    name = module("def enrich(payload): return payload")
    assert load_handlers(f"{name}:enrich").describe() == "enrich"


def test_a_module_gives_all_its_decorated_functions(module):
    name = module(
        """
        import dfq
        @dfq.task
        def one(): ...
        @dfq.task(name="shop.two")
        async def two(): ...
        again = one
        def helper(payload): ...
        """
    )
    handlers = load_handlers(name)
    assert handlers.describe() == "one, shop.two"
    assert handlers.narrow(Filter()).names == ("one", "shop.two")


def test_a_method_is_found_by_a_dotted_name(module):
    name = module("class Shop:\n    @staticmethod\n    def enrich(payload): ...")
    assert load_handlers(f"{name}:Shop.enrich").describe() == "enrich"


def test_several_targets_are_one_set(module):
    first = module("import dfq\n@dfq.task\ndef one(): ...", "dfq_test_first")
    second = module("def plain(payload): ...", "dfq_test_second")
    handlers = load_handlers(first, f"{second}:plain", f"{first}:one")
    assert handlers.narrow(Filter()).names == ("", "one", "plain")


def test_handlers_for_everything_ask_for_everything():
    """By the very object: it spares the engine the look at what a filter would let through."""
    program = command_handlers("cat")
    assert program.narrow(Filter()) is EVERYTHING
    assert program.narrow(Filter(project="p")) == Filter(project="p")


def test_a_module_that_is_not_there_is_named(module):
    said = problem("no_such_module_anywhere:enrich")
    assert "there is no module 'no_such_module_anywhere'" in said
    assert "PYTHONPATH" in said


def test_a_missing_package_of_a_dotted_name_is_named(module):
    assert "there is no module 'no_such_package'" in problem("no_such_package.tasks:enrich")


def test_a_module_that_raises_shows_the_users_own_line(module):
    name = module("limit = 3\n\ndef check():\n    raise RuntimeError('no key')\n\ncheck()\n")
    said = problem(f"{name}:enrich")
    assert "RuntimeError: no key" in said
    assert f"{name}.py, line 4, in check" in said
    assert "raise RuntimeError('no key')" in said
    assert "importlib" not in said


def test_a_missing_import_inside_the_module_is_not_taken_for_the_module_missing(module):
    name = module("import no_such_dependency")
    said = problem(name)
    assert "No module named 'no_such_dependency'" in said
    assert f"{name}.py, line 1" in said
    assert "PYTHONPATH" not in said


def test_a_syntax_error_shows_where(module):
    name = module("def enrich(:\n    pass")
    said = problem(name)
    assert "SyntaxError" in said
    assert f"{name}.py" in said
    assert "line 1" in said


def test_a_module_that_ends_the_program_at_import_does_not_end_the_worker(module):
    name = module("import sys; sys.exit(3)")
    assert "ends the program at import (SystemExit: 3)" in problem(name)


def test_a_misspelt_function_names_the_nearest(module):
    name = module("def enrich(payload): ...")
    assert "has no 'enrch'; did you mean 'enrich'?" in problem(f"{name}:enrch")


def test_something_that_is_no_function_is_refused(module):
    name = module("enrich = 3")
    assert "is int, not a function" in problem(f"{name}:enrich")


def test_a_module_without_decorated_functions_says_what_to_do(module):
    name = module("def enrich(payload): ...")
    assert f"name a plain one: {name}:function" in problem(name)


@pytest.mark.parametrize("target", ["tasks.py", "./tasks.py:run", "", ":run", "tasks:", "a/b"])
def test_a_target_that_is_no_name_is_explained(module, target):
    assert "is not a name Python can import" in problem(target)


def test_two_handlers_of_one_name_are_refused(module):
    name = module(
        """
        import dfq
        @dfq.task
        def one(): ...
        @dfq.task(name="one")
        def two(): ...
        """
    )
    assert "two handlers are named 'one'" in problem(name)


def test_two_plain_functions_are_refused(module):
    def one(payload): ...
    def two(payload): ...

    with pytest.raises(HandlerError, match="one and two are plain functions"):
        handler_set(one, two)
