"""Each bad day of a bucket: what is tried again, and what the error says to do."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from dfq.errors import InvalidConfig, QueueUnavailable, StoreBusy, StoreRefused, StoreUnsure
from dfq.store import MAX_BODY_BYTES, BodyTooLarge, Changed, Exists, Missing
from dfq.stores.s3 import S3Store
from dfq.stores.s3_rules import TRIES
from dfq.testing import FakeClock
from tests.servers import free_ports
from tests.servers.scripted import Reply, Scripted, error, scripted

pytestmark = pytest.mark.usefixtures("aws_settings")

DONE = Reply(200, b"", {"ETag": '"e1"'})
FOUND = Reply(200, b"body", {"ETag": '"e1"', "Last-Modified": "Wed, 18 Nov 2026 09:00:00 GMT"})
EMPTY_PAGE = Reply(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
ETAG = "e0"


class NoChance:
    """Waits of no length: tries follow each other at once."""

    def uniform(self, low: float, high: float) -> float:
        return low

    def bits(self, count: int) -> int:
        return 0


VERBS: dict[str, Callable[[S3Store], object]] = {
    "create": lambda store: store.create("key", b"body"),
    "replace": lambda store: store.replace("key", b"body", ETAG),
    "put": lambda store: store.put("key", b"body"),
    "delete": lambda store: store.delete("key", ETAG),
    "delete_many": lambda store: store.delete_many(["key"]),
    "read": lambda store: store.read("key"),
    "list": lambda store: store.list("pending/"),
}
WRITES = ("create", "replace", "put", "delete", "delete_many")
READS = ("read", "list")

Serve = Callable[..., tuple[S3Store, Scripted]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def make(*replies: Reply, **parameters: object) -> tuple[S3Store, Scripted]:
            script = stack.enter_context(scripted(*replies))
            store = S3Store(script.url(**parameters), chance=NoChance())
            stack.enter_context(closing(store))
            return store, script

        yield make


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (error(403, "InvalidAccessKeyId"), "AWS_ACCESS_KEY_ID"),
        (error(403, "SignatureDoesNotMatch"), "AWS_SECRET_ACCESS_KEY"),
        (error(400, "ExpiredToken"), "sign in again"),
        (error(404, "NoSuchBucket"), "create it or mend its name"),
        (error(403, "RequestTimeTooSkewed"), "set this machine's clock"),
        (error(301, "PermanentRedirect"), "region="),
        (error(501, "NotImplemented"), "conditional writes"),
        (Reply(400, b"<html>What?</html>"), "an S3 store"),
    ],
    ids=lambda value: None if isinstance(value, str) else value.body[13:30].decode(),
)
def test_a_refusal_says_what_to_mend(serve, verb, reply, advice):
    store, _ = serve(reply)
    with pytest.raises(StoreRefused, match=advice) as caught:
        VERBS[verb](store)
    assert "s3://dfq-tests/q" in str(caught.value)


@pytest.mark.parametrize(
    ("verb", "right"),
    [
        ("create", "s3:PutObject"),
        ("read", "s3:GetObject"),
        ("list", "s3:ListBucket"),
        ("delete", "s3:DeleteObject"),
        ("delete_many", "s3:DeleteObject"),
    ],
)
def test_a_missing_permission_is_named(serve, verb, right):
    store, script = serve(error(403, "AccessDenied"))
    with pytest.raises(StoreRefused, match=right):
        VERBS[verb](store)
    assert len(script.seen) == 1


def test_the_region_of_a_bucket_elsewhere_is_told(serve):
    store, _ = serve(Reply(301, b"", {"x-amz-bucket-region": "eu-central-2"}))
    with pytest.raises(StoreRefused, match=r"\?region=eu-central-2"):
        store.read("key")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "reply",
    [error(409, "ConditionalRequestConflict"), error(503, "SlowDown"), error(429, "")],
    ids=["409", "503", "429"],
)
def test_what_was_certainly_not_done_is_tried_again(serve, verb, reply):
    good = {"read": FOUND, "list": EMPTY_PAGE}.get(verb, DONE)
    store, script = serve(reply, reply, good)
    VERBS[verb](store)
    assert len(script.seen) == 3


@pytest.mark.parametrize("verb", VERBS)
def test_a_store_that_stays_busy_is_given_up_on(serve, verb):
    store, script = serve(error(503, "SlowDown"))
    with pytest.raises(StoreBusy, match="try again later"):
        VERBS[verb](store)
    assert len(script.seen) == TRIES["not_now"]


UNSURE = {
    "500": error(500, "InternalError"),
    "502": Reply(502, b"<html>Bad gateway</html>"),
    "503 by a proxy": Reply(503, b"<html>No backend</html>"),
    "silence": Reply(silent=True),
    "cut off": Reply(200, b"half", {"ETag": '"e1"'}, cut=True),
}


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("trouble", UNSURE)
def test_a_write_without_an_answer_is_never_sent_again(serve, verb, trouble):
    store, script = serve(UNSURE[trouble])
    with pytest.raises(StoreUnsure, match="unknown: read it again"):
        VERBS[verb](store)
    assert len(script.seen) == 1


@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize("trouble", UNSURE)
def test_a_read_without_an_answer_is_tried_again(serve, verb, trouble):
    store, script = serve(UNSURE[trouble], {"read": FOUND, "list": EMPTY_PAGE}[verb])
    VERBS[verb](store)
    assert len(script.seen) == 2


@pytest.mark.parametrize("verb", READS)
def test_reads_end_when_no_answer_ever_comes(serve, verb):
    store, script = serve(Reply(silent=True))
    with pytest.raises(QueueUnavailable, match="check the network") as caught:
        VERBS[verb](store)
    assert not isinstance(caught.value, StoreUnsure)
    assert len(script.seen) == TRIES["unsure"]


@pytest.mark.parametrize(
    ("verb", "reply", "lost"),
    [
        ("create", error(412, "PreconditionFailed"), Exists),
        ("replace", error(412, "PreconditionFailed"), Changed),
        ("replace", error(404, "NoSuchKey"), Missing),
        ("delete", error(412, "PreconditionFailed"), Changed),
    ],
)
def test_a_condition_that_failed_is_a_loss_at_once(serve, verb, reply, lost):
    store, script = serve(reply)
    with pytest.raises(lost):
        VERBS[verb](store)
    assert len(script.seen) == 1


def test_conditions_are_sent_as_headers(serve):
    store, script = serve(DONE)
    for verb in ("create", "replace", "put", "delete"):
        VERBS[verb](store)
    sent = [
        (seen.headers.get("If-None-Match"), seen.headers.get("If-Match")) for seen in script.seen
    ]
    assert sent == [("*", None), (None, '"e0"'), (None, None), (None, '"e0"')]


def test_a_clock_that_is_off_is_corrected_by_the_server_s(serve):
    store, script = serve(error(403, "RequestTimeTooSkewed"), DONE)
    store.create("key", b"body")
    signed_at = [seen.headers["X-Amz-Date"] for seen in script.seen]
    assert signed_at[0] != signed_at[1]
    assert signed_at[1].startswith("20261118T0903")


def test_the_server_s_clock_runs_on_between_answers(serve):
    clock = FakeClock(wall=0.0)
    with scripted(DONE) as script, closing(S3Store(script.url(), clock=clock)) as store:
        start = store.now()
        clock.advance(90)
        clock.jump_wall(-86_400)
        assert store.now() == start + 90
        assert [seen.method for seen in script.seen] == ["HEAD"]


def test_a_silent_server_has_no_time(serve):
    store, _ = serve(Reply(silent=True))
    with pytest.raises(QueueUnavailable, match="doesn't tell the time"):
        store.now()


@pytest.mark.parametrize("verb", VERBS)
def test_an_endpoint_that_is_down_is_told_from_silence(verb):
    (port,) = free_ports(1)
    url = f"s3://bucket/q?endpoint=http://127.0.0.1:{port}&addressing=path"
    with closing(S3Store(url, chance=NoChance())) as store:
        with pytest.raises(QueueUnavailable, match="check the network, the endpoint") as caught:
            VERBS[verb](store)
        assert not isinstance(caught.value, StoreUnsure)
        assert sum(store.requests.snapshot().values()) == TRIES["unreached"]


def test_a_slow_endpoint_ends_in_a_timeout(serve):
    store, _ = serve(Reply(hold=threading.Event()), timeout=0.2)
    with pytest.raises(StoreUnsure, match=r"no answer within 0\.2 s"):
        store.create("key", b"body")


@pytest.mark.parametrize(
    "page",
    [
        b"<ListBucketResult><Contents><Key>q/a</Key>",
        b"<html><body>Sign in to the hotel's network</body></html>",
        b"",
    ],
    ids=["cut", "portal", "empty"],
)
def test_a_damaged_page_is_asked_for_again_and_never_taken(serve, page):
    store, _ = serve(Reply(200, page), EMPTY_PAGE)
    assert store.list("") == ((), None)
    store, script = serve(Reply(200, page))
    with pytest.raises(QueueUnavailable, match="damaged"):
        store.list("")
    assert len(script.seen) == TRIES["unsure"]


def test_keys_that_were_not_deleted_are_reported(serve):
    def said(code: str) -> Reply:
        inner = f"<Error><Key>q/key</Key><Code>{code}</Code></Error>"
        return Reply(200, f"<DeleteResult>{inner}</DeleteResult>".encode())

    store, script = serve(said("NoSuchKey"), said("AccessDenied"), said("InternalError"))
    store.delete_many(["key"])
    with pytest.raises(StoreRefused, match="s3:DeleteObject"):
        store.delete_many(["key"])
    with pytest.raises(StoreBusy, match="InternalError"):
        store.delete_many(["key"])
    assert len(script.seen) == 3


def test_a_thousand_keys_go_in_one_request(serve):
    store, script = serve(Reply(200, b"<DeleteResult/>"))
    store.delete_many(f"k/{number}" for number in range(2001))
    assert [seen.body.count(b"<Object>") for seen in script.seen] == [1000, 1000, 1]


def test_a_store_without_etags_is_no_s3(serve):
    store, _ = serve(Reply(200))
    with pytest.raises(StoreRefused, match="no ETag"):
        store.create("key", b"")


def test_a_huge_object_is_not_read(serve):
    store, _ = serve(Reply(200, bytes(MAX_BODY_BYTES + 1), {"ETag": '"e"'}))
    with pytest.raises(BodyTooLarge, match="key"):
        store.read("key")


def test_a_store_without_conditional_delete_is_never_asked_for_one(serve):
    store, script = serve(DONE)
    store.conditional_delete = False
    with pytest.raises(StoreRefused, match="no conditional delete"):
        store.delete("key", ETAG)
    assert script.seen == []
    assert store.delete("key") is True


def test_a_connection_is_used_again_and_a_closed_one_is_noticed(serve):
    store, script = serve(DONE, Reply(200, b"", {"ETag": '"e1"', "Connection": "close"}), DONE)
    for _ in range(4):
        store.put("key", b"")
    assert len(script.seen) == 4


def test_no_credentials_are_reported_at_opening(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreRefused, match="aws configure"):
        S3Store("s3://bucket/q?endpoint=http://127.0.0.1:1")


def test_an_unknown_profile_is_reported_at_opening():
    with pytest.raises(InvalidConfig, match="nobody"):
        S3Store("s3://bucket/q?profile=nobody")


def test_a_certificate_nobody_vouches_for_is_refused(tmp_path: Path):
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

    def wrap(listening):
        return context.wrap_socket(listening, server_side=True)

    with (
        scripted(DONE, wrap=wrap) as script,
        closing(S3Store(script.url())) as store,
        pytest.raises(StoreRefused, match="AWS_CA_BUNDLE"),
    ):
        store.create("key", b"")
    with scripted(DONE, wrap=wrap) as script, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_CA_BUNDLE", str(tmp_path / "cert.pem"))
        with closing(S3Store(script.url())) as store:
            assert store.create("key", b"") == "e1"


def test_plain_http_where_tls_is_expected_is_explained(serve):
    with scripted(DONE) as script:
        script.endpoint = script.endpoint.replace("http://", "https://")
        with (
            closing(S3Store(script.url())) as store,
            pytest.raises(StoreRefused, match="endpoint=http://"),
        ):
            store.create("key", b"")
