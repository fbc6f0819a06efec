from __future__ import annotations

import pytest

import dfq
from dfq.errors import InvalidURL
from dfq.stores.s3_address import S3Address, parse_address


def test_a_bucket_and_a_prefix_are_enough():
    assert parse_address("s3://bucket/a/b/") == S3Address("bucket", "a/b/")
    assert parse_address("s3://bucket") == S3Address("bucket", "")
    assert parse_address("s3://bucket/a/b").url == "s3://bucket/a/b"


def test_parameters_lead_to_other_stores():
    url = "s3://b.c/q?endpoint=http://127.0.0.1:8333/&region=eu-1&addressing=path&profile=pi&timeout=3"
    assert parse_address(url) == S3Address(
        "b.c", "q/", "http://127.0.0.1:8333", "eu-1", "path", "pi", 3.0
    )


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://bucket/q", "no s3 URL"),
        ("s3:///q", "no valid bucket"),
        ("s3://key:secret@bucket/q", "never into the URL"),
        ("s3://bucket/a//b", "prefix"),
        ("s3://bucket/../b", "prefix"),
        ("s3://bucket/q#x", "no s3 URL"),
        ("s3://bucket/q?endpont=http://x", "endpoint"),
        ("s3://bucket/q?endpoint=ftp://x", "endpoint=http://127"),
        ("s3://bucket/q?endpoint=127.0.0.1:8333", "endpoint=http://127"),
        ("s3://bucket/q?endpoint=http://[::1", "endpoint=http://127"),
        ("s3://bucket/q?addressing=dns", "path or virtual"),
        ("s3://bucket/q?region=a+b", "region"),
        ("s3://bucket/q?timeout=soon", "seconds"),
        ("s3://bucket/q?timeout=0", "seconds"),
        ("s3://bucket/q?timeout=nan", "seconds"),
    ],
)
def test_a_wrong_url_is_told_what_to_mend(url, says):
    with pytest.raises(InvalidURL, match=says):
        parse_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:SECRET@bucket/q",
        "s3://AKIA:SEC/RET@bucket/q",
        "s3://AKIA:SEC?RET@bucket/q",
        "s3://AKIA:SEC#RET@bucket/q",
        "s3://bucket/q?endpoint=http://me:SECRET@host",
        "s3://bucket/q?endpoint=http://:SECRET@host",
        "s3://bucket/q?endpoint=http%3A%2F%2Fme%3ASECRET%40host",
        "s3://bucket/q?endpoint=http://me:SECRET@host&tiemout=3",
        "s3://bucket/q?tiemout=http://me:SECRET@host",
        "s3://bucket/q?endpoint=http://me:SECRET@host&timeout=x",
    ],
)
def test_no_message_shows_a_secret(url):
    with pytest.raises(InvalidURL) as caught:
        parse_address(url)
    for part in ("SEC", "RET", "AKIA"):
        assert part not in str(caught.value)


def test_no_message_about_an_engine_shows_a_secret():
    for url in ("postgres://me:SECRET@host/db", "s4://AKIA:SECRET@bucket/q"):
        with pytest.raises(InvalidURL) as caught:
            dfq.open(url)
        assert "SECRET" not in str(caught.value)
