"""What every store does."""

from __future__ import annotations

import pytest

from dfq.store import (
    MAX_BODY_BYTES,
    MAX_KEY_LENGTH,
    BodyTooLarge,
    Changed,
    Exists,
    InvalidKey,
    Lost,
    Store,
)

ELSE = "0" * 32


def keys_of(store: Store, prefix: str = "") -> list[str]:
    return [entry.key for entry in store.list(prefix).entries]


def pages(store: Store, limit: int) -> list[str]:
    """The keys of all pages, read one after the other."""
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = store.list("", after, limit)
        assert len(page.entries) <= limit
        seen += [entry.key for entry in page.entries]
        assert len(seen) < 100, "the pages have no end"
        after = page.next
    return seen


def test_what_is_created_is_read_back(store):
    etag = store.create("pending/00/a/task.json", b'{"n": 1}')
    there = store.read("pending/00/a/task.json")
    assert (there.body, there.etag) == (b'{"n": 1}', etag)


@pytest.mark.parametrize("body", [b"", b"\x00\xff\r\n\r\n", b"x" * 300_000], ids=len)
def test_any_bytes_are_kept(store, body):
    store.create("body", body)
    assert store.read("body").body == body


def test_a_key_that_is_not_there_reads_as_none(store):
    assert store.read("nothing/here") is None


def test_a_key_is_created_once(store):
    store.create("key", b"first")
    with pytest.raises(Exists, match="key"):
        store.create("key", b"second")
    assert store.read("key").body == b"first"


def test_a_key_can_be_created_again_after_its_end(store):
    store.create("folder/key", b"first")
    store.delete("folder/key")
    store.create("folder/key", b"second")
    assert store.read("folder/key").body == b"second"


def test_the_version_named_is_replaced(store):
    first = store.create("key", b"first")
    second = store.replace("key", b"second", first)
    assert second != first
    assert store.read("key")[:2] == (b"second", second)


def test_another_version_is_not_replaced(store):
    first = store.create("key", b"first")
    store.replace("key", b"second", first)
    with pytest.raises(Changed):
        store.replace("key", b"third", first)
    assert store.read("key").body == b"second"


def test_a_key_that_is_gone_is_not_replaced(store):
    etag = store.create("key", b"first")
    store.delete("key")
    with pytest.raises(Lost):
        store.replace("key", b"second", etag)
    assert store.read("key") is None


def test_put_asks_no_questions(store):
    store.put("key", b"first")
    etag = store.put("key", b"second")
    assert store.read("key")[:2] == (b"second", etag)


def test_the_version_named_is_deleted(store):
    etag = store.create("key", b"first")
    assert store.delete("key", etag) is True
    assert store.read("key") is None


def test_another_version_is_not_deleted(store):
    first = store.create("key", b"first")
    store.replace("key", b"second", first)
    with pytest.raises(Changed):
        store.delete("key", first)
    assert store.read("key").body == b"second"


def test_deleting_what_is_gone_does_no_harm(store):
    store.delete("key")
    # SeaweedFS calls it changed; both say that it is not ours any more.
    try:
        assert store.delete("key", ELSE) is False
    except Changed:
        assert store.read("key") is None


def test_many_are_deleted_at_once_and_only_those(store):
    for number in range(12):
        store.put(f"many/{number:02d}", b"x")
    store.delete_many([*(f"many/{number:02d}" for number in range(10)), "many/not-there"])
    assert keys_of(store) == ["many/10", "many/11"]
    store.delete_many([])
    assert len(keys_of(store)) == 2


def test_an_empty_store_lists_nothing(store):
    assert store.list("") == ((), None)
    assert store.list("pending/") == ((), None)


# '-' and '.' sort before '/', digits after it: a walk of folders gets this wrong.
MIXED = ["a-b/x", "a.b", "a/b/c", "a/b0", "a/b=c", "a0", "aZ", "a_", "b/x", "b~/y"]


def test_a_listing_is_in_the_order_of_bytes(store):
    for key in reversed(MIXED):
        store.put(key, key.encode())
    # SeaweedFS walks its folders: a name that goes on with '-' or '.' comes after 'name/'.
    order = str if store.name != "seaweedfs" else lambda key: key.split("/")
    assert keys_of(store) == sorted(MIXED, key=order)


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_pages_miss_nothing_whatever_the_order(store, limit):
    for key in MIXED:
        store.put(key, b"")
    assert sorted(pages(store, limit)) == sorted(MIXED)


def test_a_listing_has_what_a_read_has(store):
    etag = store.create("one/key", b"12345")
    (entry,) = store.list("one/").entries
    there = store.read("one/key")
    assert entry == ("one/key", etag, there.modified, 5)


def test_a_prefix_is_no_folder(store):
    for key in ("ab/1", "abc/2", "b/3", "ab.4"):
        store.put(key, b"x")
    assert sorted(keys_of(store, "ab")) == ["ab.4", "ab/1", "abc/2"]
    assert keys_of(store, "ab/") == ["ab/1"]
    assert keys_of(store, "ab/1") == ["ab/1"]
    assert keys_of(store, "ab/12") == []


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
def test_pages_joined_are_the_whole_listing(store, limit):
    keys = sorted(
        f"{folder}/{number}/{leaf}" for folder in "ab" for number in (1, 2) for leaf in "xy"
    )
    for key in keys:
        store.put(key, b"")
    assert pages(store, limit) == keys


def test_a_listing_goes_on_after_a_key_that_is_not_there(store):
    for key in ("a/1", "a/3", "b/5"):
        store.put(key, b"")
    assert [entry.key for entry in store.list("", "a/2").entries] == ["a/3", "b/5"]
    assert [entry.key for entry in store.list("a/", "a/3").entries] == []
    assert [entry.key for entry in store.list("b/", "a/1").entries] == ["b/5"]
    assert [entry.key for entry in store.list("a/", "b/5").entries] == []


def test_a_write_is_dated_by_the_store_s_own_clock(store):
    before = store.now()
    store.put("key", b"")
    modified = store.read("key").modified
    after = store.now()
    # Whole seconds on both sides.
    assert before - 1 <= modified <= after + 1
    assert before <= after


def test_requests_are_counted_by_kind(store):
    store.now()
    before = store.requests.snapshot()
    etag = store.create("key", b"")
    store.replace("key", b"2", etag)
    store.read("key")
    store.list("")
    store.delete("key")
    store.delete_many(["key"])
    after = store.requests.snapshot()
    assert {kind: after[kind] - before[kind] for kind in after} == {
        "put": 2,
        "get": 1,
        "list": 1,
        "delete": 2,
    }


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "..",
        "a/../b",
        "./a",
        "a b",
        "ä",
        "a\n",
        "a?b",
        "a#b",
        "a%2fb",
        "a\0",
    ],
)
def test_a_key_that_could_be_read_in_two_ways_is_refused(store, key):
    for use in (
        lambda: store.create(key, b""),
        lambda: store.replace(key, b"", ELSE),
        lambda: store.put(key, b""),
        lambda: store.read(key),
        lambda: store.delete(key),
        lambda: store.delete_many([key]),
    ):
        with pytest.raises(InvalidKey, match="can't be stored"):
            use()


def test_a_key_as_long_as_allowed_is_kept(store):
    key = "/".join(["x" * 199] * 4)
    assert len(key) <= MAX_KEY_LENGTH
    store.create(key, b"long")
    assert store.read(key).body == b"long"
    with pytest.raises(InvalidKey):
        store.create("x" * (MAX_KEY_LENGTH + 1), b"")


def test_a_body_too_large_is_refused_before_it_is_sent(store):
    with pytest.raises(BodyTooLarge, match="key"):
        store.create("key", bytes(MAX_BODY_BYTES + 1))
    assert store.read("key") is None


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_of_an_impossible_size_is_refused(store, limit):
    with pytest.raises(ValueError, match="1 to 1000"):
        store.list("", limit=limit)


def test_a_listing_longer_than_a_page_is_read_to_its_end(store):
    for number in range(25):
        store.put(f"p/{number:02d}", b"")
    first = store.list("p/", limit=20)
    second = store.list("p/", first.next, limit=20)
    assert (len(first.entries), len(second.entries), second.next) == (20, 5, None)
