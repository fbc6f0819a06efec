"""What GitHub's runners do with each other's results."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"


def workflow(name):
    return yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text())


def steps(name, action):
    """The settings of every step that uses an action, by its job."""
    return [
        (job, step.get("with", {}))
        for job, described in workflow(name)["jobs"].items()
        for step in described.get("steps", ())
        if step.get("uses", "").startswith(f"{action}@")
    ]


def test_a_release_publishes_all_it_built_and_nothing_that_its_tests_left():
    (fetched,) = (
        given for job, given in steps("release", "actions/download-artifact") if job == "publish"
    )
    built = [given["name"] for _, given in steps("release", "actions/upload-artifact")]
    # A workflow that is called leaves its artifacts in the run of its caller.
    assert workflow("release")["jobs"]["test"]["uses"] == "./.github/workflows/ci.yml"
    left = [given["name"] for _, given in steps("ci", "actions/upload-artifact")]
    assert built
    assert left
    assert [name for name in (*built, *left) if fnmatchcase(name, fetched["pattern"])] == built


@pytest.mark.parametrize("name", ["audit", "ci", "release"])
def test_runs_of_one_branch_but_another_event_do_not_end_each_other(name):
    group = workflow(name)["concurrency"]["group"]
    assert "github.event_name" in group
    assert "github.ref" in group


def test_a_release_runs_each_wheel_for_linux_before_it_publishes():
    jobs = workflow("release")["jobs"]
    built = {one["wheel"] for one in jobs["linux"]["strategy"]["matrix"]["include"]}
    # Nobody has 32 bits to run it on, and the documentation says so.
    built.remove("armv7l")
    tried = {
        one["wheel"]
        for name in ("try", "try-musl")
        for one in jobs[name]["strategy"]["matrix"]["include"]
    }
    assert tried == built
    assert {"test", "try", "try-musl"} <= set(jobs["publish"]["needs"])
