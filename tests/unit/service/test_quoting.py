"""Words and paths in a unit file."""

from __future__ import annotations

import pytest

from dfq.errors import InvalidConfig
from dfq.service.quoting import command_line, path, pattern, unword, word


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("jobs", "jobs"),
        ("100%", "100%%"),
        ("50%% \\x41", r'"50%%%% \\x41"'),
        ("a b", '"a b"'),
        ("", '""'),
        ('say "no"', r'"say \"no\""'),
        ("it's", '"it\'s"'),
        ("back\\slash", r'"back\\slash"'),
        ("two\nlines", r'"two\x0alines"'),
        ("Zürich", '"Zürich"'),
        ("a;b", '"a;b"'),
        ("zero\u200bwidth", r'"zero\xe2\x80\x8bwidth"'),
    ],
)
def test_a_word_is_one_word_and_nothing_in_it_means_anything(text, written):
    assert word(text) == written
    assert unword(written) == text


def test_a_command_line_is_not_searched_for_variables():
    assert command_line(["/opt/a b/python", "$HOME"]) == '":/opt/a b/python" "$HOME"'


def test_a_path_keeps_its_spaces_but_not_its_specifiers():
    assert path("/srv/a b/100%") == "/srv/a b/100%%"


@pytest.mark.parametrize("odd", ["/srv/a\nExecStart=/bin/sh", "/srv/a ", "/srv/a\\"])
def test_a_path_that_would_end_its_line_early_or_go_on_in_the_next_is_refused(odd):
    with pytest.raises(InvalidConfig, match="unit file"):
        path(odd)


def test_a_path_where_patterns_are_read_is_no_pattern():
    assert pattern("/etc/dfq/a*.env") == "/etc/dfq/a[*].env"
