"""Every example in the documents runs, prints what they say it prints, and no link is dead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = (
    "docs/guide.md",
    "docs/index.md",
    "docs/protocol.md",
    "docs/guarantees.md",
    "docs/operations.md",
)

_LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
_TEST = re.compile(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`")


def written():
    """Every document there is."""
    top = [REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md"]
    return [*top, *sorted((REPOSITORY / "docs").rglob("*.md"))]


def anchors(document):
    """What a link can point to within a document."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_an_example_runs_and_prints_what_the_document_says(run_section, section):
    run_section(section)


@pytest.mark.parametrize("document", written(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_link_is_dead(document):
    for path, anchor in _LINK.findall(document.read_text()):
        target = document.parent / path if path else document
        assert target.exists(), f"{document.name} links to {path}"
        if anchor:
            assert anchor in anchors(target), f"{document.name} links to {path}#{anchor}"


def test_the_index_names_every_document():
    index = REPOSITORY / "docs" / "README.md"
    linked = {index.parent / path for path, _ in _LINK.findall(index.read_text())}
    assert linked == set((REPOSITORY / "docs").rglob("*.md")) - {index}


@pytest.mark.parametrize("document", written(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_a_test_that_a_document_names_is_there(document):
    for path, name in _TEST.findall(document.read_text()):
        text = (REPOSITORY / path).read_text()
        assert not name or f"def {name}(" in text, f"{document.name} names {path}::{name}"
