"""Secrets in URLs, well-formed and malformed: no part of one appears anywhere."""

import logging
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

import pytest

from holdfast.adapters.nats.sink import NatsSink
from holdfast.adapters.nats.transport import NatsJobTransport
from holdfast.adapters.sinks.webhook import WebhookSink
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.hosts.cli.main import main
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.stores import (
    built_in_sink,
    open_blobs,
    open_scheduler,
    open_stores,
    open_transport,
)
from holdfast.ports.errors import HoldfastError, InvalidArgumentError, InvalidUrlError
from holdfast.ports.queries.store import SchemaVersion
from holdfast.ports.urls import hide, secrets_of, shown_url
from holdfast.testing.conformance.events import an_event
from tests.sizes import sized

PART: Final = "c4n4ry"
SECRETS: Final = tuple(
    f"{PART}{char}{PART}"
    for char in ("", *"%@/#?:[] &=+,'\"\\", "\n", "\x1b", "é", "\ud800", "%zz", "//", "@@")
)
"""A part before and after a character with a meaning in URLs: not even a part may appear."""
DATABASES: Final = (
    "postgresql://u:{}@127.0.0.1:1/d",
    "postgresql://u:{}@127.0.0.1:1",
    "postgresql://u:{}@[::1]:1/d",
    "postgres://u:{}@127.0.0.1:1,127.0.0.1:1/d?target_session_attrs=read-write",
    "postgresql+psycopg://u:{}@127.0.0.1:1/d",
    "postgresql+asyncpg://u:{}@127.0.0.1:1/d",
    "postgresql://u:{}@127.0.0.1:99999/d",
    "postgresql://u:{}@127.0.0.1:0/d",
    "postgresql://u:{}@127.0.0.1:port/d",
    "postgresql://u:{}@[::1/d",
    "postgresql://u:{}@a b/d",
    "postgresql://u:{}@127.0.0.1:1/d?sslmode=evil",
    "postgresql://u:{}@127.0.0.1:1/d?connect_timeout=soon",
    "postgresql://u:{}@127.0.0.1:1/d?nothing=1",
    "postgresql://u:{}@127.0.0.1:1/d?target_session_attrs=standby",
    "postgresql://u:{}@127.0.0.1:1/d#x",
    "postgresql://u:{}",
    "postgresql://u:{}/d",
    "postgresql://:{}@127.0.0.1:1/d",
    "postgresql:u:{}@127.0.0.1:1/d",
    "postgresql:/u:{}@127.0.0.1:1/d",
    "postgres//u:{}@127.0.0.1:1/d",
    "://u:{}@127.0.0.1:1/d",
    "u:{}@127.0.0.1:1/d",
    " postgresql://u:{}@127.0.0.1:1/d",
    "postgresql://u:{}@127.0.0.1:1/d\n",
    "mysql://u:{}@127.0.0.1/d",
    "redis://:{}@127.0.0.1/0",
    "postgresql://127.0.0.1:1/d?user=u&password={}",
    "postgresql://127.0.0.1:1/d?password={}&sslmode=evil",
    "postgresql://127.0.0.1:1/d?sslpassword={}",
    "postgresql://127.0.0.1:1/d?options=-capp.token%3D{}",
    "postgresql://127.0.0.1:1/d?token={}",
    "postgresql://127.0.0.1:1/d?PASSWORD={}",
    "postgresql://127.0.0.1:1/d#{}",
    "sqlite://u:{}@h/a.db",
    "sqlite:///a.db?key={}",
    "sqlite:///:memory:?key={}",
    "sqlite://?key={}",
    "memory://u:{}@h",
    "memory://?key={}",
)
OTHERS: Final = (
    "s3://KEY:{}@bucket/prefix",
    "s3://bucket/prefix?secret={}",
    "s3://bucket/prefix#{}",
    "gs://u:{}@bucket/prefix",
    "file://u:{}@host/folder",
    "https://u:{}@sqs.eu-central-1.amazonaws.com/1/jobs",
    "sqs://u:{}@sqs.eu-central-1.amazonaws.com/1/jobs",
    "https://sqs.eu-central-1.amazonaws.com/1/jobs?token={}",
    "nats://u:{}@127.0.0.1:1",
    "nats://{}@127.0.0.1:1",
    "nats://u:{}@127.0.0.1:1,nats://u:{}@127.0.0.1:1/SHOP",
    "nats://u:{}@127.0.0.1:99999",
    "nats://127.0.0.1:1?token={}",
    "nats://u:{}",
    "tls://u:{}@127.0.0.1:1/holdfast.events",
    "eventbridge://u:{}@group?role=arn:aws:iam::1:role/x",
    "eventbridge://group?role=arn:aws:iam::1:role/x&queue=https://u:{}@sqs.x.amazonaws.com/1/jobs",
    "eventbridge://group?role=x&token={}",
    "sns://u:{}@arn:aws:sns:eu-central-1:1:t",
    "http://u:{}@127.0.0.1:1/hook",
    "https://127.0.0.1:1/hook?token={}",
    "https://127.0.0.1:1/services/a/b/{}",
    "https://127.0.0.1:1/hook#{}",
    "https://u:{}@[::1/hook",
    "https://127.0.0.1:port/{}",
)


HOST_MAY_BE_SECRET: Final = ("postgresql://u:{}", "postgresql://u:{}/d", "nats://u:{}")
"""Forms in which the part of the secret after an @ cannot be told from a host name."""


def filled(forms: tuple[str, ...]) -> Iterator[str]:
    for number, form in enumerate(forms):
        for secret in (
            SECRETS[0],
            SECRETS[1 + number % (len(SECRETS) - 1)],
            SECRETS[1 + (number * 7 + 3) % (len(SECRETS) - 1)],
        ):
            yield from filled_with(form, secret)


def filled_with(form: str, secret: str) -> Iterator[str]:
    yield form.replace("{}", secret)
    yield form.replace("{}", quote(secret, safe="", errors="surrogatepass"))


def leaks(text: str) -> bool:
    return PART in text


def message_chain(error: BaseException | None) -> str:
    """Return all readable text of an error and its causes, which a traceback may or may not show."""
    said: list[str] = []
    while error is not None:
        said += [str(error), repr(error), *map(repr, error.args)]
        said += map(repr, vars(error).values())
        error = error.__cause__ or error.__context__
    return "\n".join(said)


def opened_and_used(url: str) -> object:
    stores = open_stores(url, patience=0.01)
    try:
        assert not leaks(repr(stores) + str(stores.url) + repr(stores.persistence))
        return stores.persistence.read(SchemaVersion())
    finally:
        stores.persistence.close()
        stores.transport.close()


def sent(url: str) -> object:
    sink = built_in_sink(url, allow_internal=True)
    assert not leaks(repr(sink))
    try:
        sink.emit([an_event()])
    finally:
        close: Callable[[], None] | None = getattr(sink, "close", None)
        if close is not None:
            close()
    return sink


def announced(url: str) -> object:
    transport = open_transport(url)
    assert transport is not None
    assert not leaks(repr(transport))
    try:
        transport.receive(1, 0.0)
    finally:
        transport.close()
    return transport


OPENERS: Final[dict[str, Callable[[str], object]]] = {
    "Engine.open": lambda url: Engine.open(url, patience=0.01),
    "store": opened_and_used,
    "SqlPersistence": SqlPersistence,
    "blobs": open_blobs,
    "scheduler": open_scheduler,
    "queue of a scheduler": lambda url: open_scheduler("eventbridge://g?role=arn:aws:iam::1:role/x", url),
    "transport": open_transport,
    "sink": lambda url: built_in_sink(url, allow_internal=True),
    "WebhookSink": WebhookSink,
    "NatsSink": NatsSink,
    "NatsJobTransport": NatsJobTransport,
}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Run in a temporary folder: some URLs create files."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.parametrize("opener", OPENERS)
def test_no_error_and_nothing_that_is_opened_shows_a_secret(
    opener: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    untyped: list[str] = []
    for url in list(filled((*DATABASES, *OTHERS)))[:: sized(3, 1)]:
        try:
            found = repr(OPENERS[opener](url))
        except HoldfastError as error:
            found = message_chain(error)
        except ValueError as error:
            found = message_chain(error)
            if opener != "SqlPersistence":  # whose callers say what kind of URL it was to be
                untyped.append(f"{url!r}: {error!r}")
        if leaks(found):
            shown.append(f"{url!r}: {found}")

    assert shown == []
    assert untyped == []
    assert not leaks(caplog.text)


@pytest.mark.slow
@pytest.mark.parametrize("use", [sent, announced])
def test_what_can_not_be_reached_is_named_without_its_secrets(use: Callable[[str], object]) -> None:
    shown: list[str] = []
    for url in (one for one in filled(OTHERS[8:]) if "127.0.0.1:1" in one and "SHOP" not in one):
        try:
            use(url)
        except HoldfastError as error:
            if leaks(message_chain(error)):
                shown.append(f"{url!r}: {message_chain(error)}")

    assert shown == []


@pytest.mark.parametrize("form", [*DATABASES, *OTHERS])
def test_what_is_shown_of_a_url_and_of_texts_that_have_it_has_no_part_of_a_secret(form: str) -> None:
    urls = [url for secret in SECRETS for url in filled_with(form, secret)]
    if form in HOST_MAY_BE_SECRET:
        urls = [url for url in urls if "@" not in url]

    assert [url for url in urls if leaks(shown_url(url))] == []
    for text in ("No such command '{}'.", "{!r} is no engine", "{}"):
        assert [url for url in urls if leaks(hide(text.format(url), secrets_of(url)))] == []


COMMANDS: Final = (
    ("db", "status", "URL", "--patience", "0.01"),
    ("run", "list", "--url", "URL", "--patience", "0.01", "--json"),
    ("run", "list", "--url=URL", "--patience", "0.01"),
    ("run", "show", "URL"),
    ("run", "start", "URL", "orders", "1"),
    ("doctor", "URL", "--url", "URL"),
    ("URL",),
    ("run", "URL", "--json"),
    ("worker", "URL"),
    ("worker", "nothing:engine", "--sink", "audit=URL"),
    ("run", "list", "x", "y", "URL"),
    ("db", "status", "--url", "memory://", "--blobs", "URL"),
    ("db", "status", "--url", "memory://", "--transport", "URL", "--json"),
    ("db", "status", "--url", "memory://", "--scheduler", "URL"),
)


@pytest.mark.sized
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_shows_a_secret(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    for url in list(filled((*DATABASES, *OTHERS)))[:: sized(41, 3)]:
        main([word.replace("URL", url) for word in command])
        written = capsys.readouterr()
        if leaks(written.out + written.err):
            shown.append(f"{url!r}: {written.out}{written.err}")

    assert shown == []


def test_no_command_shows_a_secret_of_its_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for url in ("postgresql://u:c4n4ry%@127.0.0.1:1/d", "postgresql:u:c4n4ry@127.0.0.1:1/d"):
        for variable in ("HOLDFAST_URL", "HOLDFAST_ENGINE"):
            monkeypatch.setenv(variable, url)
            main(["db", "status", "--patience", "0.01"])
            main(["worker"])
            monkeypatch.delenv(variable)
    written = capsys.readouterr()

    assert not leaks(written.out + written.err)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h:5432/d?sslmode=require", "postgresql://***@h:5432/d?sslmode=require"),
        ("postgresql://h/d?password=p&x=1", "postgresql://h/d?password=***&***"),
        ("postgresql://a:1,b:2/d", "postgresql://a:1,b:2/d"),
        ("postgresql://u:p/w@h/d", "postgresql://***"),
        ("postgresql://u:p@w@h/d", "postgresql://***@h/d"),
        ("sqlite:////home/me@work/a.db", "sqlite:////home/me@work/a.db"),
        ("postgresql://u:p", "postgresql://***"),
        ("sqlite:////var/lib/größe 1.db", "sqlite:////var/lib/größe 1.db"),
        ("sqlite:///a\u202e.db", "sqlite:///a\\u202e.db"),
        ("holdfast.db", "holdfast.db"),
        ("u:p@h/d", "***"),
        ("memory://", "memory://"),
    ],
)
def test_what_is_no_secret_is_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_s3_urls_with_credentials_are_refused_and_say_what_to_do() -> None:
    for url in ("s3://KEY:SECRET@bucket/prefix", "s3://bucket/prefix?aws_secret_access_key=x"):
        with pytest.raises(InvalidUrlError, match="leave them out") as caught:
            open_blobs(url)
        assert "SECRET" not in message_chain(caught.value)
        assert not isinstance(caught.value, InvalidArgumentError)
