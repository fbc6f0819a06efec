"""What every store does with objects that come from files and go into files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from dfq.store import MAX_BODY_BYTES, BodyTooLarge, Changed, Exists, InvalidKey, Lost

ELSE = "0" * 32
#: Larger than any body, and no number of whole chunks.
LARGE = MAX_BODY_BYTES + 123_457


@pytest.fixture
def large(tmp_path: Path) -> str:
    return str(written(tmp_path / "large", LARGE))


def written(path: Path, size: int, seed: bytes = b"seed") -> Path:
    block = hashlib.sha512(seed).digest() * 16_384
    with path.open("wb") as file:
        for start in range(0, size, len(block)):
            file.write(block[: size - start])
    return path


def digest(path: Path | str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_a_file_larger_than_any_body_goes_in_and_comes_out(store, large, tmp_path):
    etag = store.create_from("shards/5e.usv", large)
    out = tmp_path / "out"
    found = store.fetch("shards/5e.usv", str(out))
    assert (found.key, found.etag, found.size) == ("shards/5e.usv", etag, LARGE)
    assert digest(out) == digest(large)
    (entry,) = store.list("shards/").entries
    assert (entry.etag, entry.size, entry.modified) == (etag, LARGE, found.modified)


def test_a_small_file_is_the_same_as_a_body(store, tmp_path):
    small = tmp_path / "small"
    small.write_bytes(b"a small one")
    etag = store.create_from("key", str(small))
    assert store.read("key")[:2] == (b"a small one", etag)
    second = store.replace("key", b"another", etag)
    found = store.fetch("key", str(tmp_path / "out"))
    assert (found.etag, (tmp_path / "out").read_bytes()) == (second, b"another")
    third = store.replace_from("key", str(small), second)
    assert store.read("key")[:2] == (b"a small one", third)


def test_an_empty_file_is_kept(store, tmp_path):
    (tmp_path / "empty").touch()
    store.create_from("key", str(tmp_path / "empty"))
    assert store.fetch("key", str(tmp_path / "out")).size == 0
    assert (tmp_path / "out").read_bytes() == b""


def test_the_version_of_a_large_object_that_is_named_is_replaced(store, large, tmp_path):
    first = store.create_from("key", large)
    newer = str(written(tmp_path / "newer", LARGE, b"newer"))
    second = store.replace_from("key", newer, first)
    assert second != first
    for stale in (first, ELSE):
        with pytest.raises(Changed):
            store.replace_from("key", large, stale)
    store.fetch("key", str(tmp_path / "out"))
    assert digest(tmp_path / "out") == digest(newer)


def test_a_large_object_is_created_once(store, large, tmp_path):
    store.create("key", b"first")
    with pytest.raises(Exists):
        store.create_from("key", large)
    assert store.read("key").body == b"first"


def test_a_key_that_is_gone_is_not_replaced_from_a_file(store, large):
    with pytest.raises(Lost):
        store.replace_from("key", large, ELSE)
    assert store.list("").entries == ()


def test_a_large_object_is_deleted_by_its_version(store, large):
    etag = store.create_from("key", large)
    with pytest.raises(Changed):
        store.delete("key", ELSE)
    assert store.delete("key", etag) is True
    assert store.list("").entries == ()


def test_a_large_object_is_not_read_into_memory(store, large):
    store.create_from("key", large)
    with pytest.raises(BodyTooLarge, match="key"):
        store.read("key")


def test_what_is_not_there_leaves_no_file(store, tmp_path):
    assert store.fetch("nothing/here", str(tmp_path / "out")) is None
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_there_is_not_overwritten(store, tmp_path):
    store.create("key", b"theirs")
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for taken in ("mine", "link"):
        with pytest.raises(OSError, match="exists"):
            store.fetch("key", str(tmp_path / taken))
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_no_link_is_sent(store, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="link"):
        store.create_from("key", str(tmp_path / "link"))
    assert store.read("key") is None


def test_a_fetched_file_belongs_to_its_owner_alone(store, tmp_path):
    store.create("key", b"body")
    store.fetch("key", str(tmp_path / "out"))
    assert os.stat(tmp_path / "out").st_mode & 0o777 == 0o600


def test_odd_keys_are_refused_with_files_too(store, large, tmp_path):
    for use in (
        lambda: store.fetch("../key", str(tmp_path / "out")),
        lambda: store.create_from("../key", large),
        lambda: store.replace_from("../key", large, ELSE),
    ):
        with pytest.raises(InvalidKey):
            use()
    assert not (tmp_path / "out").exists()


def test_files_cost_a_request_each(store, large, tmp_path):
    store.now()
    before = store.requests.snapshot()
    etag = store.create_from("key", large)
    store.replace_from("key", large, etag)
    store.fetch("key", str(tmp_path / "out"))
    after = store.requests.snapshot()
    assert {kind: after[kind] - before[kind] for kind in after} == {
        "put": 2,
        "get": 1,
        "list": 0,
        "delete": 0,
    }
