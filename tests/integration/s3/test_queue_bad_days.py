"""A bucket that won't serve: what the command line says, and what a running worker does."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import dfq
from dfq.errors import InvalidPolicy, StoreRefused
from dfq.policy import Policy, RetryPolicy
from dfq.worker import intake, settlement
from dfq.worker.backoff import Backoff
from tests.servers import Server, commands, free_ports, held_moto, start
from tests.servers.messages import Message
from tests.servers.proxy import faulty_proxy
from tests.servers.scripted import Reply, scripted

#: No test waits longer than this for something that should happen.
LONG = 60.0
QUICK = Policy(retry=RetryPolicy(base_seconds=0.0))
#: Commands that read, write, and do both for a long time.
VERBS = {
    "stats": ("stats", "{}"),
    "push": ("push", "{}", "a=1"),
    "worker": ("worker", "{}", "--exec", "cat", "--drain"),
    "doctor": ("doctor", "{}"),
    "init": ("init", "{}"),
}
every_verb = pytest.mark.parametrize("verb", VERBS)


@pytest.fixture
def refused(run):
    """Run a command that must end with a code and one line that says why."""

    def refused(verb: str, url: str, code: int, *said: str, **how: object) -> None:
        ran = run(*(word.format(url) for word in VERBS[verb]), **how)
        assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
        (line,) = ran.stderr.splitlines()
        assert line.startswith("dfq: error: ")
        for words in said:
            assert words in line

    return refused


@every_verb
def test_a_wrong_secret_is_named(refused, running_server, verb):
    url = running_server("seaweedfs").url("bad-days")
    refused(verb, url, 77, "AWS_SECRET_ACCESS_KEY", AWS_SECRET_ACCESS_KEY="wrong")


def test_an_unknown_access_key_is_named(refused, running_server):
    url = running_server("seaweedfs").url("bad-days")
    refused("push", url, 77, "the access key is unknown", AWS_ACCESS_KEY_ID="nobody")


def test_no_credentials_at_all_are_told(refused, url):
    none = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    refused("push", url, 77, "no credentials", "aws configure", **none)


@every_verb
def test_a_bucket_that_is_not_there_is_named(refused, running_server, verb):
    url = running_server("ministack").url("q", bucket="no-such-bucket")
    refused(verb, url, 77, "s3://no-such-bucket/q", "there is no such bucket; create it")


@every_verb
def test_an_endpoint_that_is_down_is_named(refused, verb):
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    refused(verb, Server("none", endpoint).url("q"), 74, endpoint, "that the store is running")


def test_a_worker_whose_endpoint_is_down_at_its_start_says_so_and_waits(
    environment, tmp_path, trust, running_server, prefix
):
    """It works once the store is there, and ends at once when it is told to."""
    server = running_server("ministack")
    (port,) = free_ports(1)
    words = ("worker", Server("none", f"http://127.0.0.1:{port}").url(prefix), "--exec", "cat")
    with subprocess.Popen(
        [sys.executable, "-m", "dfq", *words],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            assert worker.stderr is not None
            said = worker.stderr.readline()
            assert "can't be opened, trying on" in said
            assert "that the store is running" in said
            url = server.url(prefix)
            trust(url)
            with dfq.open(url) as queue, faulty_proxy(server, port=port):
                queue.push({"n": 1}, id="t")
                assert any("completed in" in line for line in worker.stderr)
                assert queue.get("t").state == "completed"
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(LONG) == 0
        finally:
            worker.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_its_endpoint_ends_at_once_when_told_to(
    environment, tmp_path, number
):
    (port,) = free_ports(1)
    words = ("worker", Server("none", f"http://127.0.0.1:{port}").url("q"), "--exec", "cat")
    with subprocess.Popen(
        [sys.executable, "-m", "dfq", *words],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            assert worker.stderr is not None
            assert "trying on" in worker.stderr.readline()
            worker.send_signal(number)
            assert worker.wait(LONG) == 0
            assert "Traceback" not in worker.stderr.read()
        finally:
            worker.kill()


def test_an_endpoint_that_does_not_answer_is_given_up_on(refused):
    with scripted(Reply(hold=threading.Event())) as script:
        refused("stats", script.url(timeout=0.2), 74, "no answer within 0.2 s", "raise ?timeout=")


@every_verb
def test_a_clock_that_the_store_refuses_is_told(refused, gatekeeper, prefix, verb):
    gatekeeper.refuses = lambda request: "RequestTimeTooSkewed"
    refused(verb, gatekeeper.url(prefix), 77, "set this machine's clock")


def test_a_clock_that_is_off_is_corrected_and_not_complained_of(run, trusted_url):
    program = (
        "import time; off = time.time; time.time = lambda: off() + 86_400;"
        "from dfq.cli import main; main()"
    )
    ran = run("push", trusted_url, "a=1", "--id", "t", start=("-c", program))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "t\n", "")


def test_the_doctor_tells_of_a_clock_that_is_off(opened, off_clock, url):
    findings = opened(url, clock=off_clock(86_400)).doctor()
    (finding,) = [one for one in findings if "clock" in one.message]
    assert finding.level == "ok"
    assert " s ahead of the store's" in finding.message


def test_a_certificate_nobody_vouches_for_is_told(refused, tmp_path: Path):
    assert shutil.which("openssl"), "this test makes a certificate with openssl; install it"
    pair = tmp_path / "pair.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", str(pair), "-out", str(tmp_path / "cert.pem"), "-days", "1",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", pair)
    with scripted(
        Reply(), wrap=lambda listening: context.wrap_socket(listening, server_side=True)
    ) as script:
        refused("worker", script.url(), 77, "AWS_CA_BUNDLE")


def test_plain_http_where_tls_is_expected_is_told(refused, url):
    refused("push", url.replace("http://", "https://"), 77, "endpoint=http://")


def test_a_store_without_one_winner_is_refused(refused, tmp_path, monkeypatch):
    monkeypatch.setitem(commands.COMMANDS, "held-moto", held_moto.command)
    with start("held-moto", tmp_path) as server:
        refused("push", server.url("q"), 78, "is not safe for a queue", "exactly one may")


@every_verb
def test_boto3_that_is_not_installed_is_told(refused, run, verb):
    without = "import sys; sys.modules['botocore'] = None; from dfq.cli import main; main()"
    refused(verb, "s3://bucket/q", 78, "pip install 'dfq[s3]'", start=("-c", without))
    assert run("push", "folder", "a=1", start=("-c", without)).returncode == 0


def test_a_queue_that_can_not_be_opened_leaves_no_connection_open(url, store):
    store.put("queue.json", b"{")
    # Warnings are errors here: that of a socket that nobody closed too.
    with pytest.raises(InvalidPolicy):
        dfq.open(url)


# Permissions


LIMITED = {
    "reader": ["Read", "List"],
    "not-lister": ["Read", "Write"],
    "not-reader": ["Write", "List"],
    "stranger": ["Admin:another-bucket"],
}
SECRET = "not-so-secret"


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory):
    """SeaweedFS with people who may do some things only."""

    def command(program, folder, ports, keys):
        words, extra = commands.seaweedfs(program, folder, ports, keys)
        config = folder / "identities.json"
        known = json.loads(config.read_text())
        known["identities"] += [
            {
                "name": name,
                "credentials": [{"accessKey": name, "secretKey": SECRET}],
                "actions": actions,
            }
            for name, actions in LIMITED.items()
        ]
        config.write_text(json.dumps(known))
        return words, extra

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(commands.COMMANDS, "strict", command)
        with start("strict", tmp_path_factory.mktemp("strict")) as server:
            yield server


@pytest.mark.parametrize(
    ("who", "verb", "right"),
    [
        ("reader", "push", "s3:PutObject"),
        ("reader", "init", "s3:PutObject"),
        ("not-lister", "stats", "s3:ListBucket"),
        ("not-lister", "push", "s3:ListBucket"),
        ("not-reader", "push", "s3:GetObject"),
        ("stranger", "worker", "s3:GetObject"),
    ],
)
def test_a_missing_permission_is_named(refused, strict_server, prefix, who, verb, right):
    keys = {"AWS_ACCESS_KEY_ID": who, "AWS_SECRET_ACCESS_KEY": SECRET}
    refused(verb, strict_server.url(prefix), 77, f"allow {right}", **keys)


def test_who_may_only_read_may_look(run, strict_server, trust, prefix):
    url = strict_server.url(prefix)
    trust(url)
    assert run("push", url, "a=1", "--id", "t").returncode == 0
    keys = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": SECRET}
    assert json.loads(run("stats", url, "--json", **keys).stdout)["ready"] == 1
    assert run("show", url, "t", **keys).returncode == 0
    once = run("worker", url, "--exec", "cat", "--once", **keys)
    assert once.returncode == 1
    assert "allow s3:PutObject" in once.stderr
    assert "Traceback" not in once.stderr
    assert json.loads(run("stats", url, "--json").stdout)["ready"] == 1


def test_who_may_not_delete_can_not_certify_a_bucket(refused, gatekeeper, prefix):
    gatekeeper.refuses = KINDS["delete"]
    refused("push", gatekeeper.url(prefix), 77, "allow s3:DeleteObject")


# A worker that runs when it begins


def _refuse(is_meant: Callable[[Message], bool]) -> Callable[[Message], str | None]:
    return lambda request: "AccessDenied" if is_meant(request) else None


def _is_delete(request: Message) -> bool:
    return request.method == "DELETE" or "?delete" in request.first_line[1]


KINDS = {
    "all": _refuse(lambda request: True),
    "list": _refuse(lambda request: "list-type" in request.first_line[1]),
    "write": _refuse(lambda request: request.method == "PUT"),
    "delete": _refuse(_is_delete),
}


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses of a bad spell, ten times shorter."""

    class Short(Backoff):
        def next_seconds(self) -> float:
            return super().next_seconds() / 10

    monkeypatch.setattr(intake, "Backoff", Short)
    monkeypatch.setattr(settlement, "Backoff", Short)


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_bears_a_refusal_and_comes_back(opened, work, gatekeeper, prefix, caplog, kind):
    caplog.set_level("INFO", logger="dfq")
    queue = opened(gatekeeper.url(prefix), policy=QUICK)
    for number in range(6):
        queue.push(number, id=f"task-{number}")
    runs: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def handle(payload: int) -> int:
        runs.append(payload)
        begun.set()
        assert go_on.wait(60)
        return payload

    worker = work(queue, handle, drain=True)
    assert begun.wait(60)
    gatekeeper.refuses = KINDS[kind]
    go_on.set()
    for _ in range(3):
        assert gatekeeper.refused.acquire(timeout=60)
    gatekeeper.refuses = lambda request: None
    assert worker.ended() == 0
    assert sorted(runs) == list(range(6))
    stats = queue.stats()
    assert (stats.completed, stats.pending, stats.failed) == (6, 0, 0)
    assert "Traceback" not in caplog.text
    if kind in ("all", "write"):
        assert "AccessDenied" in caplog.text


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("kind", ["all", "list", "write"])
def test_a_worker_without_permission_says_so_once_and_waits(
    opened, work, gatekeeper, prefix, caplog, kind
):
    caplog.set_level("INFO", logger="dfq")
    queue = opened(gatekeeper.url(prefix), policy=QUICK)
    queue.push(1, id="t")
    gatekeeper.refuses = KINDS[kind]
    worker = work(queue, lambda payload: payload, drain=True)
    for _ in range(5):
        assert gatekeeper.refused.acquire(timeout=60)
    gatekeeper.refuses = lambda request: None
    assert worker.ended() == 0
    assert queue.get("t").state == "completed"
    assert caplog.text.count("fails, trying on") == 1
    assert "allow s3:" in caplog.text
    assert "is back" in caplog.text


def test_a_delete_that_is_refused_loses_nothing_and_is_told(opened, gatekeeper, prefix):
    queue = opened(gatekeeper.url(prefix), policy=QUICK)
    queue.push(1, id="t")
    lease = queue.claim()
    gatekeeper.refuses = KINDS["delete"]
    queue.ack(lease, "done")
    other = opened(gatekeeper.url(prefix), policy=QUICK)
    with pytest.raises(StoreRefused, match="s3:DeleteObject"):
        other.claim()
    assert other.get("t").state == "completed"
    gatekeeper.refuses = lambda request: None
    assert other.claim() is None
    assert other.get("t").result == "done"
    assert [
        entry.key for entry in queue.store.list("pending/").entries if "task" in entry.key
    ] == []
