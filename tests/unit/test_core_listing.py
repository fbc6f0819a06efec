"""The binding of the listing's parser; its rules are tested in Rust."""

from __future__ import annotations

from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfq import _core


def page(*keys: str, truncated: bool = False) -> bytes:
    entries = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-18T09:03:00.999Z</LastModified>"
        f"<ETag>&quot;e&quot;</ETag><Size>{len(key)}</Size></Contents>"
        for key in keys
    )
    more = f"<IsTruncated>{str(truncated).lower()}</IsTruncated>"
    return f"<ListBucketResult>{more}{entries}</ListBucketResult>".encode()


def test_a_page_is_plain_values():
    entries, is_truncated, token = _core.parse_listing(page("q/a", truncated=True), "q/")
    assert entries == [("a", "e", 1_794_992_580.0, 3)]
    assert (is_truncated, token) == (True, None)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]))))
def test_any_key_survives(keys):
    entries, _, _ = _core.parse_listing(page(*keys))
    assert [entry[0] for entry in entries] == keys


@given(st.binary())
def test_nonsense_is_refused_and_nothing_worse(body):
    with pytest.raises(ValueError, match="it "):
        _core.parse_listing(body)
