"""Malformed URLs are refused at once with an error of Holdfast's, never with one of a library."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.hosts.wiring.stores import (
    built_in_sink,
    open_blobs,
    open_scheduler,
    open_stores,
    open_transport,
)
from holdfast.ports.errors import InvalidArgumentError, InvalidUrlError
from holdfast.ports.texts import escape_line
from holdfast.ports.urls import shown_url

GOOD: Final = (
    "postgresql://u:p@127.0.0.1:1/d?sslmode=require&options=-cwork_mem%3D1",
    "sqlite:////tmp/a.db",
    "memory://",
    "s3://bucket/prefix",
    "file:///a/folder",
    "https://sqs.eu-central-1.amazonaws.com/123456789012/jobs",
    "nats://u:p@h:4222/STREAM",
    "eventbridge://group?role=arn:aws:iam::123456789012:role/r&queue=https://sqs.x.amazonaws.com/1/jobs",
    "sns://arn:aws:sns:eu-central-1:123456789012:topic",
    "https://hooks.example:8443/a/b?c=d#e",
    "log",
)
OPENERS: Final[tuple[Callable[[str], object], ...]] = (
    open_stores,
    open_blobs,
    open_transport,
    open_scheduler,
    lambda url: built_in_sink(url, allow_internal=True),
)


@st.composite
def urls(draw: st.DrawFn) -> str:
    """Draw a valid URL with something changed, removed or inserted."""
    url = draw(st.sampled_from(GOOD))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(url)))
        end = draw(st.integers(start, min(len(url), start + 4)))
        new = draw(
            st.text(max_size=4) | st.sampled_from([*'%@/:?#[] ,=&\\"\n\0', "%zz", "://", "..", "٣", "\ud800"])
        )
        url = url[:start] + new + url[end:]
    return url


@pytest.fixture(autouse=True)
def _region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


@pytest.mark.slow
@pytest.mark.parametrize("opener", OPENERS)
@given(url=urls())
def test_a_malformed_url_is_an_error_of_ours(opener: Callable[[str], object], url: str) -> None:
    with suppress(InvalidUrlError, InvalidArgumentError):
        opener(url)


@pytest.mark.slow
@given(url=urls())
def test_what_is_shown_of_a_url_is_one_line_without_its_password(url: str) -> None:
    shown = shown_url(url)

    assert escape_line(shown) == shown
    assert shown_url(url.replace("u:p@", "u:c4n4ry@")).count("c4n4ry") == 0
