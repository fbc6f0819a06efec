"""docs/raspberry-pi.md: what it tells a stranger to type works as it stands."""

from __future__ import annotations

import itertools

from tests.servers import ACCESS_KEY, SECRET_KEY

DOCUMENTS = ("docs/raspberry-pi.md",)
_BUCKETS = itertools.count()


def test_an_example_runs_and_prints_what_the_document_says(run_section, section, running_server):
    replaced = {}
    if any("pi1.local:8333" in step.code for step in section.steps):
        # The store that the document starts on the first Pi is one on this machine.
        bucket = f"raspberry-pi-{next(_BUCKETS)}"
        replaced = {
            "http://pi1.local:8333": running_server("seaweedfs").endpoint,
            "AWS_ACCESS_KEY_ID=pis": f"AWS_ACCESS_KEY_ID={ACCESS_KEY}",
            "choose-a-long-secret": SECRET_KEY,
            "s3://queues/": f"s3://{bucket}/",
            'Bucket="queues"': f'Bucket="{bucket}"',
        }
    run_section(section, replaced)
