"""The documentation says what the code says."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import click
import pytest

from dfq.cli.app import dfq as dfq_command
from dfq.cli.catalogue import EXIT_CODES, SUMMARIES
from dfq.config import OTHER_VARIABLES, Config, load_config
from dfq.policy import Policy, RetryPolicy

DOCS = Path(__file__).parents[3] / "docs"
CLI = (DOCS / "cli.md").read_text()
CONFIGURATION = (DOCS / "configuration.md").read_text()


def section(name):
    match = re.search(rf"^## dfq {name}\n(.*?)(?=^## |\Z)", CLI, re.DOTALL | re.MULTILINE)
    assert match is not None, name
    return match[1]


def commands():
    for name in SUMMARIES:
        command = dfq_command.get_command(click.Context(dfq_command), name)
        yield pytest.param(name, command, id=name)
        if isinstance(command, click.Group):
            for below in command.list_commands(None):
                found = command.get_command(None, below)
                # A command may be in two places; it is documented in the shorter one.
                home = below if below in SUMMARIES else name
                yield pytest.param(home, found, id=f"{name} {below}")


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_every_option_of_every_command_is_documented(name, command):
    text = section(name)
    for parameter in command.params:
        if not isinstance(parameter, click.Option) or parameter.hidden:
            continue
        option = parameter.opts[0] if len(parameter.opts) == 1 else parameter.opts[-1]
        if parameter.name in ("as_json", "queue_option", "log_json"):
            continue  # told once for all commands
        assert f"{option}" in text, f"{option} of {command.name}"


def test_the_table_of_exit_codes_is_the_one_in_the_code():
    table = CLI.split("<!-- exit codes -->")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", table, re.MULTILINE)
    assert [(int(code), text) for code, text in rows] == list(EXIT_CODES)


def test_every_setting_is_documented_with_its_variable_and_default():
    for setting in dataclasses.fields(Config):
        row = re.search(rf"^\| `{setting.name}` \|.*$", CONFIGURATION, re.MULTILINE)
        assert row is not None, setting.name
        assert f"`DFQ_{setting.name.upper()}`" in row[0]
        if setting.default is not None:
            shown = f"{setting.default:g}" if setting.type == "float" else str(setting.default)
            assert f"| `{shown.lower()}` |" in row[0], row[0]


def test_every_variable_a_program_gets_is_documented():
    for variable in OTHER_VARIABLES - {"DFQ_CONFIG", "DFQ_WORKER_CHILD", "DFQ_WORKER_NOTIFY"}:
        assert f"`{variable}`" in CONFIGURATION


def test_the_example_of_a_file_is_valid(tmp_path):
    (example,) = re.findall(r"```toml\n(.*?)```", CONFIGURATION, re.DOTALL)
    (tmp_path / "dfq.toml").write_text(example)
    config = load_config({"HOME": str(tmp_path)}, tmp_path)
    assert config.queue_url == str(tmp_path / "queues/jobs")
    assert config.timeout_seconds == 120


def test_every_key_of_the_policy_is_documented_with_its_default():
    keys = {field.name: field.default for field in dataclasses.fields(Policy)}
    keys |= {f"retry.{f.name}": f.default for f in dataclasses.fields(RetryPolicy)}
    del keys["retry"]
    for key, default in keys.items():
        policy = CONFIGURATION.split("## The policy of a queue")[1]
        row = re.search(rf"^\| `{re.escape(key)}` \|.*$", policy, re.MULTILINE)
        assert row is not None, key
        shown = f"`{default}`" if isinstance(default, str) else f"{default:.0f}"
        assert f"| {shown} |" in row[0], row[0]
