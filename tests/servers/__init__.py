"""S3 servers for tests and benchmarks: real processes on free ports of this machine.

``with start("seaweedfs", folder) as server: …``; a server that does not come up fails the test.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.commands import COMMANDS

ACCESS_KEY = "dfq-tests"
SECRET_KEY = "dfq-tests-secret"
BUCKET = "dfq-tests"

START_SECONDS = 60
_POLL_SECONDS = 0.1
#: Between finding a free port and using it somebody else may take it.
_TRIES = 3
_PORTS = 12

#: What botocore reads instead of this machine's own settings.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
SETTINGS_OF_PEOPLE = (
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_CA_BUNDLE",
)


@dataclass(frozen=True)
class Server:
    """A server that answers, with the bucket ``BUCKET`` in it."""

    name: str
    endpoint: str

    def url(self, prefix: str, bucket: str = BUCKET, **parameters: object) -> str:
        """An s3:// URL that leads there."""
        extra = "".join(f"&{name}={value}" for name, value in parameters.items())
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&addressing=path{extra}"


class NotStarted(Exception):
    """A server did not come up; the message has the end of its log."""


@contextmanager
def start(name: str, folder: Path, *, port: int | None = None) -> Iterator[Server]:
    """Run a server, its files in ``folder``, until the end of the block."""
    for attempt in range(1, _TRIES + 1):
        with ExitStack() as stack:
            try:
                server = stack.enter_context(_running(name, folder / str(attempt), port))
            except NotStarted:
                if attempt == _TRIES:
                    raise
                continue
            yield server
            return


def settings() -> None:
    """Point botocore at the test's credentials, for scripts; tests have a fixture."""
    for name in SETTINGS_OF_PEOPLE:
        os.environ.pop(name, None)
    os.environ.update(ENVIRONMENT)


def clean_environment() -> dict[str, str]:
    """This process's environment with the test's credentials and nobody's settings."""
    kept = {key: value for key, value in os.environ.items() if key not in SETTINGS_OF_PEOPLE}
    return kept | ENVIRONMENT


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now; all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def _running(name: str, folder: Path, port: int | None) -> Iterator[Server]:
    folder.mkdir(parents=True)
    ports = free_ports(_PORTS)
    if port is not None:
        ports[0] = port
    command, extra = COMMANDS[name](_program, folder, ports, (ACCESS_KEY, SECRET_KEY))
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=clean_environment() | {"TMPDIR": str(folder)} | extra,
            cwd=folder,
            start_new_session=True,
        )
    try:
        server = Server(name, f"http://127.0.0.1:{ports[0]}")
        _wait(server, process, log)
        yield server
    finally:
        _stop(process)
        for port in ports:
            # SeaweedFS puts these here whatever it is told, and leaves them.
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise NotStarted(f"{name} is not installed beside {sys.executable}; run `make test`")
    return str(path)


def _wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until a bucket can be made: only then all parts of a server are up."""
    pause = threading.Event()
    said = ""
    for _ in range(int(START_SECONDS / _POLL_SECONDS)):
        if process.poll() is not None:
            said = f"it ended with {process.returncode}"
            break
        if _listens(server.endpoint):
            said = make_bucket(server.endpoint)
            if not said:
                return
        pause.wait(_POLL_SECONDS)
    tail = log.read_bytes()[-2000:].decode(errors="replace")
    raise NotStarted(f"{server.name} did not come up at {server.endpoint}: {said}\n{tail}")


def _listens(endpoint: str) -> bool:
    host, port = endpoint.removeprefix("http://").split(":")
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex((host, int(port))) == 0


def client(endpoint: str) -> object:
    """botocore's own client, to make buckets and to compare with."""
    from botocore.config import Config
    from botocore.session import Session

    session = Session()
    session.set_credentials(ACCESS_KEY, SECRET_KEY)
    config = Config(
        s3={"addressing_style": "path"},
        retries={"total_max_attempts": 1},
        connect_timeout=5,
        read_timeout=20,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return session.create_client(
        "s3", region_name="us-east-1", endpoint_url=endpoint, config=config
    )


def make_bucket(endpoint: str, name: str = BUCKET) -> str:
    """Make a bucket; what went wrong, or nothing."""
    from botocore.exceptions import BotoCoreError, ClientError

    s3: Any = client(endpoint)
    there_already = s3.exceptions.BucketAlreadyExists, s3.exceptions.BucketAlreadyOwnedByYou
    try:
        with suppress(*there_already):
            s3.create_bucket(Bucket=name)
        # A first object: some servers accept a bucket before they can store, and read.
        s3.put_object(Bucket=name, Key="ready", Body=b"")
        s3.get_object(Bucket=name, Key="ready")["Body"].read()
        s3.list_objects_v2(Bucket=name, MaxKeys=1)
        # Conditions go through locks, which are there later than the rest.
        _create_again(s3, name)
    except (BotoCoreError, ClientError) as error:
        return str(error)
    finally:
        s3.close()
    return ""


def _create_again(s3: Any, bucket: str) -> None:
    from botocore.exceptions import ClientError

    try:
        s3.put_object(Bucket=bucket, Key="ready", Body=b"", IfNoneMatch="*")
    except ClientError as error:
        # As it should be: it is there.
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 412:
            raise


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
