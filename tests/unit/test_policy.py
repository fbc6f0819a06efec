from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfq import InvalidPolicy, Policy, RetryPolicy
from dfq.testing import SeededChance


def test_the_default_policy_is_valid_and_survives_json():
    assert Policy.from_json(json.loads(json.dumps(Policy().to_json()))) == Policy()


def test_every_setting_survives_json():
    policy = Policy(
        lease_seconds=10,
        heartbeat_seconds=2,
        max_attempts=2,
        retry=RetryPolicy(base_seconds=1, cap_seconds=2, factor=3),
        max_payload_bytes=10,
        max_result_bytes=20,
        finished="drop",
        finished_after_seconds=0,
        safety_poll_seconds=1,
    )
    assert Policy.from_json(json.loads(json.dumps(policy.to_json()))) == policy


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("lease_seconds", 0),
        ("lease_seconds", "60"),
        ("lease_seconds", True),
        ("lease_seconds", float("nan")),
        ("lease_seconds", float("inf")),
        ("heartbeat_seconds", -1),
        ("safety_poll_seconds", 0),
        ("finished_after_seconds", -1),
        ("max_attempts", 0),
        ("max_attempts", 1.5),
        ("max_attempts", 2**31),
        ("max_payload_bytes", 0),
        ("max_result_bytes", False),
        ("finished", "burn"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(setting, value):
    with pytest.raises(InvalidPolicy, match=setting):
        Policy.from_json({setting: value})


def test_a_heartbeat_too_slow_for_its_lease_is_refused():
    Policy(lease_seconds=60, heartbeat_seconds=30)
    with pytest.raises(InvalidPolicy, match="half"):
        Policy(lease_seconds=60, heartbeat_seconds=31)


def test_a_short_lease_in_queue_json_gets_a_fitting_heartbeat():
    assert Policy.from_json({"lease_seconds": 30}).heartbeat_seconds == 10
    assert Policy.from_json({"lease_seconds": 6000}).heartbeat_seconds == 60


def test_an_unknown_key_names_the_nearest_known_one():
    with pytest.raises(InvalidPolicy, match=r"'lease_secs'.*'lease_seconds'"):
        Policy.from_json({"lease_secs": 60})
    with pytest.raises(InvalidPolicy, match=r"retry.*'base_secs'.*'base_seconds'"):
        Policy.from_json({"retry": {"base_secs": 1}})
    with pytest.raises(InvalidPolicy, match=r"known: .*max_attempts"):
        Policy.from_json({"zzzzzz": 1})


@pytest.mark.parametrize("value", [None, [], "x", 1], ids=repr)
def test_a_policy_that_is_no_object_is_refused(value):
    with pytest.raises(InvalidPolicy, match="object"):
        Policy.from_json(value)


@pytest.mark.parametrize(
    "settings",
    [
        {"base_seconds": -1},
        {"cap_seconds": float("nan")},
        {"factor": 0.5},
        {"base_seconds": "2"},
        {"cap_seconds": 1e13},
        {"factor": True},
    ],
    ids=repr,
)
def test_a_retry_policy_that_makes_no_sense_is_refused(settings):
    with pytest.raises(InvalidPolicy, match="retry"):
        RetryPolicy.from_json(settings)


def test_waits_double_until_the_cap():
    retry = RetryPolicy(base_seconds=2, cap_seconds=30, factor=2)
    assert [retry.ceiling_seconds(n) for n in (0, 1, 2, 3, 4, 5, 6)] == [2, 2, 4, 8, 16, 30, 30]


@given(
    attempts=st.integers(0, 10**9),
    base=st.floats(0, 1e12),
    cap=st.floats(0, 1e12),
    factor=st.floats(1, 1e3),
    seed=st.integers(0, 2**32),
)
def test_a_wait_is_never_negative_nor_beyond_the_cap(attempts, base, cap, factor, seed):
    retry = RetryPolicy(base_seconds=base, cap_seconds=cap, factor=factor)
    assert 0 <= retry.delay_seconds(attempts, SeededChance(seed)) <= cap


def test_the_jitter_is_full():
    retry = RetryPolicy(base_seconds=100, cap_seconds=100)
    chance = SeededChance(1)
    waits = [retry.delay_seconds(1, chance) for _ in range(1_000)]
    assert min(waits) < 5
    assert max(waits) > 95
    assert 45 < sum(waits) / len(waits) < 55
