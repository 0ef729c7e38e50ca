"""Builds adapters from URLs. This is the only module in which hosts import adapters."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import parse_qsl

import attrs

from holdfast.adapters.files.blobs import FileBlobStore
from holdfast.adapters.sql.databases import kind_of, url_forms
from holdfast.adapters.system.clock import SystemClock
from holdfast.adapters.system.ids import UlidIds
from holdfast.ports.blobs import BlobStore
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.durations import Duration
from holdfast.ports.errors import HoldfastError, InvalidUrlError, SchemaError
from holdfast.ports.events import EventSink
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.store import SchemaVersion
from holdfast.ports.scheduler import Scheduler
from holdfast.ports.transport import JobTransport
from holdfast.ports.urls import hide, secrets_of, shown_url
from holdfast.ports.validation import Wanted, check, duration, with_methods
from holdfast.ports.zones import ZoneTables

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from holdfast.adapters.aws.sqs_messages import SqsMessages
    from holdfast.adapters.memory.persistence import MemoryPersistence
    from holdfast.adapters.sql.schema.migrator import Refusal

T = TypeVar("T")

MEMORY: Final = "memory"
"""The schema version of a store without tables."""
PATIENCE: Final = 30.0
"""How long a call retries while the database is unavailable, in seconds, by default."""
_BLOBS: Final = Wanted(
    "a URL in a string, such as file:///an/absolute/folder, or a blob store with `put`, `get` and so on",
    lambda value: isinstance(value, str) or with_methods("", "put", "get", "exists").test(value),
).or_none
_TRANSPORT: Final = Wanted(
    "a URL in a string, such as nats://host:4222, or a JobTransport: an object with `announce`, `receive` and so on",
    lambda value: isinstance(value, str) or with_methods("", "announce", "receive").test(value),
).or_none
_SCHEDULER: Final = Wanted(
    "a URL in a string, such as eventbridge://group?role=arn, or a Scheduler: an object with `schedule` and `cancel`",
    lambda value: isinstance(value, str) or with_methods("", "schedule", "cancel").test(value),
).or_none
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_QUEUE: Final = re.compile(r"(sqs|https?)://[\w.-]+(:[0-9]+)?(/[\w.-]+){2}/?", re.ASCII)
_SCHEDULES: Final = re.compile(r"eventbridge://(?P<group>[\w.-]*)/?\?(?P<query>[^#]*)", re.ASCII)
_NATS_SUBJECT: Final = re.compile(r"(?P<servers>\w+://[^/]*)/?(?P<subject>[^/]*)")
_NATS: Final = re.compile(r"(?P<servers>\w+://[^/]*(,\w+://[^/]*)*)/?(?P<stream>[\w-]*)", re.ASCII)


def has_time_zones() -> bool:
    """Whether the extra `schedules` is installed, which has the data of time zones."""
    return find_spec("tzdata") is not None


@cache
def zone_tables() -> ZoneTables:
    """Return the tables of all time zones, the same in each call. Only zones other than UTC need the extra."""
    # Imported here, as few programs need time zones.
    from holdfast.adapters.system.zones import TzdataZones

    return TzdataZones()


@attrs.frozen(kw_only=True)
class Stores:
    """The adapters that an engine uses."""

    persistence: Persistence
    transport: JobTransport
    blobs: BlobStore | None
    clock: Clock
    ids: Ids
    url: str | None = None
    """The URL of the store, without secrets; None for adapters of the application."""
    file: Path | None = None
    """The file that holds the whole store, if there is one."""
    scheduler: Scheduler | None = None
    """What wakes sleeping jobs; None where workers or maintenance do."""
    zones: ZoneTables | None = attrs.field(factory=lambda: zone_tables() if has_time_zones() else None)
    """The time zones; None without the package that has their data."""


def open_stores(
    url: str,
    blobs: str | BlobStore | None = None,
    transport: str | JobTransport | None = None,
    patience: Duration = PATIENCE,
    scheduler: str | Scheduler | None = None,
) -> Stores:
    """Return the adapters for these URLs. Nothing is connected to yet.

    A `BlobStore`, `JobTransport` or `Scheduler` is used as it is. By default a store in a file keeps large values
    beside it, in `<file>.blobs`; other stores keep them inline.

    Args:
        url: The store.
        blobs: Where large values go.
        transport: What carries hints, instead of the store's own transport.
        patience: How long a call retries while the database is unavailable, a timedelta or a number of seconds.
        scheduler: What wakes sleeping jobs.

    Raises:
        InvalidUrlError: A URL has no known form.
        InvalidArgumentError: An argument has the wrong type.
    """
    check(
        "Engine.open", Wanted(f"a URL in a string: {_forms()}", lambda value: isinstance(value, str)), url=url
    )
    check("Engine.open", _BLOBS, blobs=blobs)
    check("Engine.open", _TRANSPORT, transport=transport)
    check("Engine.open", _SCHEDULER, scheduler=scheduler)
    seconds = duration("Engine.open", "patience", patience).total_seconds()
    ids = UlidIds()
    wakes = open_scheduler(scheduler, transport)
    carries = open_transport(transport)
    stores = partial(Stores, clock=SystemClock(), ids=ids, url=shown_url(url), scheduler=wakes)
    if url.partition(":")[0] == "memory":
        if url != "memory://":
            raise InvalidUrlError(f"{shown_url(url)!r}: a store in memory has no name; use memory://")
        from holdfast.adapters.memory.persistence import MemoryPersistence
        from holdfast.adapters.memory.transport import MemoryTransport

        memory = MemoryPersistence()
        return stores(persistence=memory, transport=carries or MemoryTransport(), blobs=open_blobs(blobs))
    if kind_of(url) is not None:
        # Imported here, as an engine in memory needs no SQLAlchemy.
        from holdfast.adapters.sql.persistence import SqlPersistence

        database = _opened(url, lambda: SqlPersistence(url, new_id=ids.new, deadline=seconds))
        beside = f"file://{database.file.resolve()}.blobs" if database.file else None
        return stores(
            persistence=database,
            transport=carries or _opened(url, database.transport),
            blobs=open_blobs(blobs if blobs is not None else beside),
            file=database.file,
        )
    raise InvalidUrlError(f"{shown_url(url)!r} is not the URL of a store; use {_forms()}")


def _forms() -> str:
    """Return an example of a URL for each kind of store."""
    *others, last = ("memory://", *url_forms())
    return f"{', '.join(others)} or {last}"


def _opened(url: str, make: Callable[[], T]) -> T:
    """Return what `make` returns. Raises InvalidUrlError, without the secrets of the URL, if the URL is not valid."""
    try:
        return make()
    except (ValueError, TypeError, OSError, HoldfastError) as error:
        secrets = secrets_of(url)
        messages = "\n".join(map(str, _chain(error)))
        if isinstance(error, HoldfastError) and hide(messages, secrets) == messages:
            raise
        shown = hide(str(error), secrets)
    # Outside of the except block, so that the original error with its secrets does not become the context.
    raise InvalidUrlError(f"{shown_url(url)!r}: {shown}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def open_blobs(url: str | BlobStore | None) -> BlobStore | None:
    """Return the blob store for a URL; a blob store or None is returned as it is. Raises InvalidUrlError."""
    if not isinstance(url, str):
        return url
    scheme, _, path = url.partition("://")
    if scheme == "s3" and path.strip("/"):
        # Imported here, as boto3 is in an extra.
        from holdfast.adapters.aws.s3 import S3BlobStore

        _refuse_credentials(url)
        bucket, _, prefix = path.partition("/")
        return _opened(url, lambda: S3BlobStore(bucket, prefix.rstrip("/")))
    if scheme != "file" or not path.startswith("/") or _CONTROL.search(path):
        raise InvalidUrlError(
            f"{shown_url(url)!r} is not the URL of a blob store; use file:///an/absolute/folder or s3://bucket/prefix"
        )
    return FileBlobStore(Path(path))


def open_transport(url: str | JobTransport | None) -> JobTransport | None:
    """Return the transport for a URL; a transport or None is returned as it is.

    Forms: `https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE`, the URL of an SQS queue, also with `sqs://`; and
    `nats://HOST:PORT/STREAM` or `tls://...`, with commas between several servers.

    Raises:
        InvalidUrlError: The URL has none of these forms.
        InvalidArgumentError: The region of the queue is not known.
    """
    if not isinstance(url, str):
        return url
    scheme, _, address = url.partition("://")
    if queue := _queue_url(url):
        # Imported here, as boto3 and the NATS client are in extras.
        from holdfast.adapters.aws.sqs import SqsJobTransport

        return _opened(url, lambda: SqsJobTransport(queue))
    if scheme in {"nats", "tls"} and address and (found := _NATS.fullmatch(url)):
        from holdfast.adapters.nats.transport import STREAM, NatsJobTransport

        servers, stream = found["servers"], found["stream"] or STREAM
        return _opened(url, lambda: NatsJobTransport(servers, stream=stream))
    raise InvalidUrlError(
        f"{shown_url(url)!r} is not the URL of a transport; use the URL of an SQS queue, https://... or sqs://..., or"
        " nats://host:4222/stream"
    )


def open_scheduler(
    url: str | Scheduler | None, transport: str | JobTransport | None = None
) -> Scheduler | None:
    """Return the scheduler for a URL; a scheduler or None is returned as it is.

    Form: `eventbridge://GROUP?role=ARN`, a group of schedules of Amazon EventBridge and the role that they run as. They
    send to the SQS queue in `&queue=URL`, by default to that of `transport`, if it is a URL.

    Raises:
        InvalidUrlError: The URL does not have this form.
        InvalidArgumentError: The queue or the role is not valid.
    """
    if not isinstance(url, str):
        return url
    found = _SCHEDULES.fullmatch(url)
    options = dict(parse_qsl(found["query"])) if found else {}
    queue = options.pop("queue", transport if isinstance(transport, str) else "")
    if found is None or set(options) != {"role"} or not _queue_url(queue):
        raise InvalidUrlError(
            f"{shown_url(url)!r} is not the URL of a scheduler; use eventbridge://group?role=arn:aws:iam::..., with"
            " &queue=https://sqs... where the transport is not an SQS queue"
        )
    from holdfast.adapters.aws.scheduler import EventBridgeScheduler

    return _opened(
        url,
        lambda: EventBridgeScheduler(
            _queue_url(queue), role=options["role"], group=found["group"] or "default"
        ),
    )


def _refuse_credentials(url: str) -> None:
    """Raise InvalidUrlError if a URL contains a user, a password or parameters."""
    if any(char in url for char in "@?#"):
        raise InvalidUrlError(
            f"{shown_url(url)!r} has a user, a password or parameters in it: leave them out; the environment, a profile"
            " or a role says who this is"
        )


def _queue_url(url: str) -> str:
    """Return the https URL of an SQS queue; empty if the text is not one."""
    if not _QUEUE.fullmatch(url):
        return ""
    return f"https{url.removeprefix('sqs')}" if url.startswith("sqs") else url


def schema_of(stores: Stores) -> str | None:
    """Return the version of a store's tables; None if it has no tables. A missing file is not created."""
    if stores.file is not None and not stores.file.exists():
        return None
    return stores.persistence.read(SchemaVersion())


def scratch_store() -> "MemoryPersistence":
    """Return an empty store in memory, for work on copies of rows."""
    from holdfast.adapters.memory.persistence import MemoryPersistence

    return MemoryPersistence()


def check_schema(stores: Stores) -> None:
    """Raise SchemaError unless a store's tables have the version of this package.

    With adapters of the application any version passes.
    """
    there, where = schema_of(stores), stores.url
    if there is None:
        is_missing = stores.file is not None and not stores.file.exists()
        raise SchemaError(
            f"{where or 'the store'} {'does not exist yet' if is_missing else 'has no tables yet'}; run"
            f" `holdfast db upgrade` to {'create it' if is_missing else 'create the tables'}"
        )
    if where is None or there == MEMORY:
        return
    here = newest_schema()
    if there != here:
        refusal = schema_refusal(there)
        if refusal is None:
            raise SchemaError(
                f"the tables have version {there}, but this version of Holdfast needs {here}: run"
                f" `holdfast db upgrade {where}`"
            )
        raise SchemaError(f"the tables of {where} have version {there}, {refusal.why}: {refusal.remedy}")


def newest_schema() -> str:
    """Return the version of the tables that this package needs."""
    from holdfast.adapters.sql.schema.migrator import newest_version

    return newest_version()


def schema_refusal(version: str) -> "Refusal | None":
    """Return why `holdfast db upgrade` refuses tables of this version; None if it brings them up to date."""
    from holdfast.adapters.sql.schema.migrator import refusal_of

    return refusal_of(version)


def host_name() -> str:
    """Return a name of this process for people: `<host>:<pid>`."""
    return f"{os.uname().nodename}:{os.getpid()}"


def sqs_messages(client: "SQSClient | None" = None) -> "SqsMessages":
    """Return operations on messages that SQS delivered to a function. Raises InvalidArgumentError."""
    # Imported here, as boto3 is in an extra.
    from holdfast.adapters.aws.sqs_messages import SqsMessages

    return SqsMessages(client)


def built_in_sink(what: str, secrets: Sequence[str] = (), *, allow_internal: bool = False) -> EventSink:
    """Return the event sink that a text names.

    Forms: `log`; `http://...` or `https://...`, a webhook; `eventbridge://BUS`, a bus by name or ARN; `sns://TOPIC`, a
    topic by ARN; `nats://HOST:PORT/SUBJECT`. A webhook signs with `secrets`, and calls internal addresses only with
    `allow_internal`.

    Raises:
        InvalidUrlError: The text has none of these forms.
        InvalidArgumentError: The bus, the topic, the region or a secret is not valid.
    """
    if what == "log":
        from holdfast.adapters.sinks.log import LogSink

        return LogSink()
    return _opened(what, lambda: _sink_of(what, secrets, allow_internal=allow_internal))


def _sink_of(url: str, secrets: Sequence[str], *, allow_internal: bool) -> EventSink:
    scheme, _, address = url.partition("://")
    if scheme == "eventbridge":
        from holdfast.adapters.aws.eventbridge import EventBridgeSink

        _refuse_credentials(url)
        return EventBridgeSink(address)
    if scheme == "sns":
        from holdfast.adapters.aws.sns import SnsSink

        _refuse_credentials(url)
        return SnsSink(address)
    if scheme in {"nats", "tls"}:
        from holdfast.adapters.nats.sink import NatsSink

        found = _NATS_SUBJECT.fullmatch(url)
        if found is not None:
            subject = found["subject"]
            return NatsSink(found["servers"], **({"subject": subject} if subject else {}))
    if scheme in {"http", "https"}:
        from holdfast.adapters.sinks.webhook import WebhookSink

        return WebhookSink(url, secrets=secrets, allow_internal=allow_internal)
    raise InvalidUrlError(
        f"{shown_url(url)!r} is not a sink; use log, http://..., https://..., eventbridge://bus, sns://arn or"
        " nats://host:4222/subject"
    )
