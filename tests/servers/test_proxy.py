"""The faulty proxy: each fate does what it says, and what passes is not touched."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dfq.testing import SeededChance
from tests.servers import Server
from tests.servers.misfortune import FATES, Fate, Plan
from tests.servers.proxy import Proxy, faulty_proxy
from tests.servers.scripted import Reply, Scripted, scripted

HELLO = Reply(200, b"hello, world", {"ETag": '"abc"'})


def always(fate: Fate, **more: object) -> Plan:
    return Plan(SeededChance(1), {fate: 1.0}, **more)


@contextmanager
def behind(*replies: Reply, plan: Plan | None = None) -> Iterator[tuple[Proxy, Scripted]]:
    """A proxy in front of a server that says what it is told."""
    with (
        scripted(*(replies or (HELLO,))) as script,
        faulty_proxy(Server("scripted", script.endpoint), plan) as proxy,
    ):
        yield proxy, script


def address(proxy: Proxy) -> tuple[str, int]:
    return "127.0.0.1", int(proxy.endpoint.rsplit(":", 1)[1])


def raw(proxy: Proxy, *requests: bytes) -> bytes:
    """Send bytes to the proxy on one connection; all that comes back until it is closed."""
    with socket.create_connection(address(proxy), 20) as connection:
        for request in requests:
            connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            return stream.read()


def ask(proxy: Proxy, method: str = "PUT", body: bytes = b"body", **headers: str) -> bytes:
    """One request; what comes back."""
    lines = [f"{method} /key?a=%20b HTTP/1.1", "Host: signed.example:1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    return raw(proxy, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def test_a_request_arrives_byte_for_byte():
    request = (
        b"PUT /k HTTP/1.1\r\nhOSt:  proxy.example:9 \r\nX-B: 2\r\nContent-Length: 3\r\n\r\nabc"
    )
    answer = b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nx-odd:1\r\n\r\nok"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server("bare", f"http://127.0.0.1:{listener.getsockname()[1]}")
        with (
            faulty_proxy(server) as proxy,
            socket.create_connection(address(proxy), 20) as us,
        ):
            us.sendall(request)
            there, _ = listener.accept()
            with there:
                there.settimeout(20)
                assert there.recv(1000) == request
                there.sendall(answer)
                assert us.recv(1000) == answer


def test_a_connection_is_used_again_and_again():
    with behind() as (proxy, script):
        one = b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n"
        two = b"PUT /two HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"
        assert raw(proxy, one, two, one).count(b"hello, world") == 3
        assert [(seen.path, seen.body) for seen in script.seen] == [
            ("/one", b""),
            ("/two", b"ab"),
            ("/one", b""),
        ]
        assert proxy.counts == {"passed": 3}


def test_an_answer_in_pieces_passes_unchanged():
    pieces = b"5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server("bare", f"http://127.0.0.1:{listener.getsockname()[1]}")
        with faulty_proxy(server) as proxy:
            client = http.client.HTTPConnection(*address(proxy), timeout=20)
            client.request("GET", "/")
            there, _ = listener.accept()
            with there:
                there.recv(1000)
                there.sendall(head + pieces)
                assert client.getresponse().read() == b"hello, world"
            client.close()


def test_a_client_that_waits_to_go_on_is_told_so():
    with behind() as (proxy, script):
        answer = ask(proxy, Expect="100-continue")
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        assert script.seen[0].body == b"body"


def test_the_head_alone_answers_head():
    with behind(Reply(200, b"not sent")) as (proxy, _):
        assert b"not sent" not in ask(proxy, "HEAD", b"")


def test_a_lost_request_never_arrives():
    with behind(plan=always("lost")) as (proxy, script):
        assert ask(proxy) == b""
        assert proxy.deliver_all() == 0
        assert script.seen == []
        assert proxy.counts == {"lost": 1}


def test_a_lost_answer_hides_that_the_request_arrived():
    with behind(plan=always("lost_answer")) as (proxy, script):
        assert ask(proxy) == b""
        assert [seen.body for seen in script.seen] == [b"body"]


def test_a_cut_answer_is_never_whole():
    with behind(plan=always("cut_body")) as (proxy, script):
        for _ in range(30):
            head, _, body = ask(proxy).partition(b"\r\n\r\n")
            assert b"Content-Length: 12" in head
            assert b"hello, world".startswith(body) and len(body) < 12
        assert len(script.seen) == 30


def test_a_cut_head_is_never_whole():
    with behind(plan=always("cut_head")) as (proxy, script):
        answers = [ask(proxy) for _ in range(30)]
        assert all(answer.startswith(b"H") and b"\r\n\r\n" not in answer for answer in answers)
        assert len(set(answers)) > 10
        assert len(script.seen) == 30


def test_a_cut_answer_without_a_body_is_lost():
    with behind(Reply(200), plan=always("cut_body")) as (proxy, script):
        assert ask(proxy) == b""
        assert len(script.seen) == 1


def test_a_late_request_arrives_after_others():
    with behind(plan=always("late", max_later_requests=1)) as (proxy, script):
        assert ask(proxy, body=b"late") == b""
        assert script.seen == []
        proxy.plan = None
        for number in range(3):
            assert b"hello" in ask(proxy, body=b"%d" % number)
        assert proxy.deliver_all() == 0
        assert sorted(seen.body for seen in script.seen) == [b"0", b"1", b"2", b"late"]
        assert proxy.later_answers == {"PUT 200": 1}


def test_a_late_request_arrives_on_demand():
    with behind(plan=always("late", max_later_requests=1000)) as (proxy, script):
        for number in range(5):
            assert ask(proxy, body=b"%d" % number) == b""
        assert proxy.deliver_all() == 5
        assert len(script.seen) == 5
        assert proxy.deliver_all() == 0


def test_a_late_request_that_is_not_asked_for_never_arrives():
    with scripted(HELLO) as script:
        plan = always("late", max_later_requests=1000)
        with faulty_proxy(Server("scripted", script.endpoint), plan) as proxy:
            assert ask(proxy) == b""
        assert script.seen == []


def test_a_repeated_request_arrives_twice_and_is_answered_once():
    replies = (Reply(200, b"first"), Reply(412, b"again"))
    with behind(*replies, plan=always("repeated", max_later_requests=9)) as (proxy, script):
        assert ask(proxy).endswith(b"first")
        assert len(script.seen) == 1
        assert proxy.deliver_all() == 1
        assert script.seen[0] == script.seen[1]
        assert proxy.later_answers == {"PUT 412": 1}


def test_the_second_answer_may_be_the_one_that_comes_back():
    replies = (Reply(200, b"first"), Reply(412, b"again"))
    with behind(*replies, plan=always("second_answer")) as (proxy, script):
        assert ask(proxy).endswith(b"again")
        assert script.seen[0] == script.seen[1]


def test_a_delayed_request_is_answered():
    with behind(plan=always("delayed", longest_delay_seconds=0.001)) as (proxy, _):
        assert ask(proxy).endswith(b"hello, world")
        assert proxy.counts == {"delayed": 1}


@pytest.mark.parametrize(
    ("fate", "first", "code"),
    [
        ("slow_down", b"HTTP/1.1 503 ", b"<Code>SlowDown</Code>"),
        ("server_error", b"HTTP/1.1 500 ", b"<Code>InternalError</Code>"),
        ("conflict", b"HTTP/1.1 409 ", b"<Code>ConditionalRequestConflict</Code>"),
    ],
)
def test_a_refused_request_never_arrives(fate, first, code):
    with behind(plan=always(fate)) as (proxy, script):
        answer = ask(proxy, If_None_Match="*")
        assert answer.startswith(first) and code in answer
        assert script.seen == []
        assert proxy.counts == {fate: 1}


def test_only_conditional_writes_conflict():
    with behind(plan=always("conflict")) as (proxy, script):
        assert b"hello" in ask(proxy)
        assert b"hello" in ask(proxy, "GET", b"", If_Match="x")
        assert b" 409 " in ask(proxy, "DELETE", b"", If_Match="x")
        assert proxy.counts == {"passed": 2, "conflict": 1}
        assert len(script.seen) == 2


def test_a_server_that_is_away_is_no_answer():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = Server("nobody", f"http://127.0.0.1:{listener.getsockname()[1]}")
    with faulty_proxy(nobody) as proxy:
        assert ask(proxy) == b""
        assert proxy.counts == {"passed": 1, "broken": 1}


def test_the_same_seed_has_the_same_misfortunes():
    def row(seed: int) -> list[object]:
        plan = Plan(SeededChance(seed), dict.fromkeys(FATES, 0.08))
        return [plan.draw() for _ in range(200)]

    assert row(3) == row(3) != row(4)
    assert {one.fate for one in row(3)} == {*FATES, None}


@pytest.mark.parametrize("shares", [{"lost": -0.1}, {"lost": 0.6, "late": 0.6}, {"loost": 0.1}])
def test_a_plan_that_can_t_be_is_refused(shares):
    with pytest.raises(ValueError, match=r"shares are|no fates"):
        Plan(SeededChance(0), shares)
