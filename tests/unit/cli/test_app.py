from __future__ import annotations

import click
import pytest

from dfq.cli.app import dfq as dfq_command
from dfq.cli.catalogue import EXIT_CODES, SUMMARIES
from dfq.errors import DfqError
from tests.commands import EVERY_COMMAND


def every_error(kind=DfqError):
    yield kind
    for below in kind.__subclasses__():
        yield from every_error(below)


def load(name):
    found = dfq_command.get_command(click.Context(dfq_command), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_catalogue_says_what_the_command_says(name):
    command = load(name)
    assert command.help.splitlines()[0] == SUMMARIES[name]
    assert command.name == "command" or command.name == name


@pytest.mark.parametrize("name", EVERY_COMMAND)
def test_every_command_has_an_example_and_no_option_without_help(run, name):
    command = EVERY_COMMAND[name]
    assert command.examples
    # A command may be in two places; its examples are of one of them.
    places = (f"dfq {name}", f"dfq {name.split()[-1]}")
    assert all(any(place in example for place in places) for example in command.examples)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
    ran = run(*name.split(), "--help")
    assert ran.code == 0
    assert command.examples[0] in ran.out


@pytest.mark.parametrize("name", [n for n in EVERY_COMMAND if n != "completion"])
def test_json_is_everywhere(name):
    options = [option for parameter in EVERY_COMMAND[name].params for option in parameter.opts]
    assert "--json" in options


def test_help_lists_every_command_and_every_exit_code(run):
    out = run("--help").out
    for name, summary in SUMMARIES.items():
        assert name in out
        assert summary in out
    for code, _ in EXIT_CODES:
        assert f"{code:>3}  " in out


def test_every_error_exits_with_a_code_that_is_documented():
    documented = {code for code, _ in EXIT_CODES}
    for error in every_error():
        assert error.exit_code in documented, error


def test_an_unknown_command_names_the_nearest(run):
    ran = run("stat")
    assert ran.code == 2
    assert "did you mean 'stats'" in ran.err


def test_an_error_is_one_line_and_its_exit_code(run, url, queue, monkeypatch):
    def fail(_self):
        raise DfqError("two\nlines \x1b[2J")

    monkeypatch.setattr(type(queue), "stats", fail)
    ran = run("stats", url)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "dfq: error: two lines \\x1b[2J\n"


def test_an_error_without_a_message_is_told_by_its_class(run, url, queue, monkeypatch):
    from dfq.errors import QueueBusy

    def fail(_self):
        raise QueueBusy

    monkeypatch.setattr(type(queue), "stats", fail)
    ran = run("stats", url)
    assert ran.code == 75
    assert "Try again" in ran.err


def test_a_bug_asks_to_be_reported_without_a_traceback(run, url, queue, monkeypatch):
    def fail(_self):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(type(queue), "stats", fail)
    ran = run("stats", url)
    assert ran.code == 70
    assert "ZeroDivisionError: oh" in ran.err
    assert "report" in ran.err
    assert "Traceback" not in ran.err
    for words in (["--debug", "stats", url], ["stats", url, "--debug"]):
        with pytest.raises(ZeroDivisionError):
            run(*words)


def test_debug_ends_with_its_run(run, url, queue, monkeypatch):
    run("--debug", "stats", url)

    def fail(_self):
        raise ZeroDivisionError

    monkeypatch.setattr(type(queue), "stats", fail)
    assert run("stats", url).code == 70


def test_an_error_of_the_system_is_no_bug(run, url, queue, monkeypatch):
    def fail(_self):
        raise PermissionError(13, "Permission denied", "/srv/q")

    monkeypatch.setattr(type(queue), "stats", fail)
    ran = run("stats", url)
    assert ran.code == 74
    assert "/srv/q" in ran.err
    assert "bug" not in ran.err


def test_ctrl_c_exits_with_130(run, url, queue, monkeypatch):
    def interrupt(_self):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(queue), "stats", interrupt)
    ran = run("stats", url)
    assert ran.code == 130
    assert "Traceback" not in ran.err


def test_a_wrong_configuration_is_told_by_every_command_that_needs_it(run, monkeypatch):
    monkeypatch.setenv("DFQ_QUEUE", "x")
    ran = run("stats")
    assert ran.code == 78
    assert "DFQ_QUEUE_URL" in ran.err


@pytest.mark.parametrize(
    "words", [["stats", "URL"], ["push", "URL", "1"], ["demo"], ["health", "h"]]
)
def test_an_unknown_variable_is_told_by_every_command(run, url, monkeypatch, words):
    monkeypatch.setenv("DFQ_CONCURENCY", "3")
    ran = run(*(url if word == "URL" else word for word in words))
    assert (ran.code, ran.out) == (78, "")
    assert "DFQ_CONCURENCY is unknown; did you mean 'DFQ_CONCURRENCY'?" in ran.err


def test_the_help_is_there_whatever_the_variables_are(run, monkeypatch):
    monkeypatch.setenv("DFQ_CONCURENCY", "3")
    assert run("stats", "--help").code == 0
    assert run("--help").code == 0


def test_a_program_of_a_task_may_use_the_command_line(run, url, monkeypatch):
    for variable in ("DFQ_TASK_ID", "DFQ_FENCE", "DFQ_ATTEMPT", "DFQ_TEST_X"):
        monkeypatch.setenv(variable, "1")
    assert run("stats", url).code == 0


def test_usage_errors_exit_with_2(run, url):
    assert run("stats", url, "--nonsense").code == 2
    assert run("ls", url, "--state", "asleep").code == 2
    assert run("push", url, "1", "--delay", "soon").code == 2
    assert run().code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(run, shell):
    ran = run("completion", shell)
    assert ran.code == 0
    assert "_DFQ_COMPLETE" in ran.out
    assert f"dfq completion {shell}" in ran.out.splitlines()[0]


def test_completion_knows_commands_options_and_folders():
    from click.shell_completion import ShellComplete

    complete = ShellComplete(dfq_command, {}, "dfq", "_DFQ_COMPLETE").get_completions
    assert [item.value for item in complete([], "re")] == ["requeue", "resume"]
    assert "--state" in [item.value for item in complete(["ls"], "--s")]
    assert [item.type for item in complete(["ls"], "")] == ["dir"]
    assert [item.value for item in complete(["ls", "--state"], "f")] == ["failed"]
