"""What a bucket's policy may allow."""

from __future__ import annotations

import json

import pytest

from dfq.cli.policy_file import write_policy
from dfq.cli.policy_places import InStore
from dfq.engines.s3.queue import S3Queue
from dfq.errors import InvalidPolicy
from dfq.policy import Policy
from dfq.stores.memory import MemoryStore
from dfq.testing import SeededChance

MIB = 1 << 20


def test_what_no_record_can_hold_is_refused_at_opening():
    policy = Policy(max_payload_bytes=10 * MIB, max_result_bytes=10 * MIB)
    with pytest.raises(InvalidPolicy, match="max_payload_bytes and max_result_bytes"):
        S3Queue(MemoryStore(), policy=policy, certified=True)


def test_the_same_in_a_buckets_own_policy_is_refused_and_named():
    store = MemoryStore("here")
    store.put("queue.json", json.dumps({"max_payload_bytes": 15 * MIB}).encode())
    with pytest.raises(InvalidPolicy, match=r"memory://here/queue\.json: "):
        S3Queue(store, certified=True)


def test_the_most_that_is_allowed_can_be_pushed_saved_tried_again_and_acked():
    policy = Policy(max_payload_bytes=8 * MIB, max_result_bytes=7 * MIB)
    queue = S3Queue(MemoryStore(), policy=policy, certified=True)
    queue.push("x" * (8 * MIB - 2), id="t")
    for _ in range(2):
        lease = queue.claim()
        queue.save_state(lease, "y" * (7 * MIB - 2))
        queue.nack(lease, "\x01" * 5_000, delay=0)
    lease = queue.claim()
    queue.ack(lease, "z" * (7 * MIB - 2))
    assert len(queue.get("t").result) == 7 * MIB - 2


def test_no_such_policy_is_written_into_a_bucket():
    store = MemoryStore("here")
    place = InStore(store, SeededChance(1))
    with pytest.raises(InvalidPolicy, match="Lower them"):
        write_policy(place, {"max_result_bytes": 15 * MIB}, None, update=False)
    assert store.read("queue.json") is None
