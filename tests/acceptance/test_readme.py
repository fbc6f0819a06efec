"""The README is what a stranger follows first: every command in it works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = ("README.md",)


def test_an_example_runs_and_prints_what_the_readme_says(run_section, section):
    run_section(section)


def test_every_make_target_that_the_readme_names_is_there():
    named = re.findall(r"^make ([a-z-]+)", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert named
    assert set(named) <= set(targets)
