"""boto3 weighs 40 MB: only who opens a bucket loads it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "dfq",
        "dfq.store",
        "dfq.stores.local",
        "dfq.stores.memory",
        "dfq.stores.s3",
        "dfq.worker",
        "dfq.cli",
        "dfq.testing",
    ],
)
def test_importing_does_not_load_botocore(module):
    script = f"""
import sys, {module}
loaded = {{"botocore", "boto3", "urllib3", "http.client", "ssl"}} & set(sys.modules)
assert not loaded, loaded
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=60)
