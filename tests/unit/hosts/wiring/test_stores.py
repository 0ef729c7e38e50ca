"""The adapters for each URL, without a connection."""

import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from holdfast.adapters.files.blobs import FileBlobStore
from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.adapters.sql.schema import migrator
from holdfast.hosts.wiring.stores import (
    check_schema,
    host_name,
    newest_schema,
    open_blobs,
    open_scheduler,
    open_stores,
    open_transport,
)
from holdfast.ports.errors import InvalidUrlError, SchemaError
from holdfast.ports.urls import shown_url


@pytest.mark.parametrize("url", ["memory://name", "memory:", "memory:///a?b=c"])
def test_memory_has_no_name(url: str) -> None:
    with pytest.raises(InvalidUrlError, match="use memory://"):
        open_stores(url)


def test_memory_is_a_store_of_its_own_each_time() -> None:
    one, other = open_stores("memory://"), open_stores("memory://")

    assert isinstance(one.persistence, MemoryPersistence)
    assert one.persistence is not other.persistence
    assert one.blobs is None


def test_a_file_keeps_its_large_values_beside_it(tmp_path: Path) -> None:
    stores = open_stores(f"sqlite:///{tmp_path}/a.db")

    assert stores.file == tmp_path / "a.db"
    assert isinstance(stores.blobs, FileBlobStore)
    assert list(tmp_path.iterdir()) == []


def test_large_values_go_where_they_are_told_to(tmp_path: Path) -> None:
    stores = open_stores("memory://", f"file://{tmp_path}/blobs")

    assert isinstance(stores.blobs, FileBlobStore)


def test_nothing_is_connected_to_before_it_is_used() -> None:
    stores = open_stores("postgresql://nobody:secret@192.0.2.1:1/nothing")

    assert stores.url == "postgresql://***@192.0.2.1:1/nothing"
    assert stores.blobs is None
    stores.persistence.close()


@pytest.mark.parametrize("url", ["", "mysql://x/y", "holdfast.db", "http://a", "redis://u:hunter2@h/0"])
def test_a_url_of_no_known_form_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(InvalidUrlError) as raised:
        open_stores(url)

    assert "hunter2" not in str(raised.value)
    assert "sqlite:///" in str(raised.value)


@pytest.mark.parametrize("url", ["file://relative", "s3://", "gs://bucket", "/a/folder", ""])
def test_a_blob_store_of_no_known_form_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrlError):
        open_blobs(url)


QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/jobs"
ROLE = "arn:aws:iam::123456789012:role/wake-ups"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (QUEUE, f"SqsJobTransport('{QUEUE}')"),
        (f"{QUEUE}.fifo", f"SqsJobTransport('{QUEUE}.fifo')"),
        (QUEUE.replace("https", "sqs"), f"SqsJobTransport('{QUEUE}')"),
        ("nats://me:hunter2@host:4222", "NatsJobTransport('nats://host:4222', stream='HOLDFAST_JOBS')"),
        ("tls://host:4222/SHOP", "NatsJobTransport('tls://host:4222', stream='SHOP')"),
        ("nats://a:1,nats://b:2/SHOP", "NatsJobTransport('nats://a:1,nats://b:2', stream='SHOP')"),
    ],
)
def test_a_transport_is_named_by_a_url(url: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    transport = open_stores("memory://", transport=url).transport

    assert repr(transport) == shown
    assert open_transport(transport) is transport


@pytest.mark.parametrize(
    "url", ["", "nats", "nats://", "redis://u:hunter2@h/0", "https://example.com", "sqs://jobs", "sqs:///a/b"]
)
def test_a_transport_of_no_known_form_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(InvalidUrlError, match="is not the URL of a transport") as raised:
        open_stores("memory://", transport=url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.slow
def test_a_scheduler_is_named_by_a_url_and_sends_to_the_queue_of_the_transport(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    of_transport = open_stores("memory://", transport=QUEUE, scheduler=f"eventbridge://wake-ups?role={ROLE}")
    of_its_own = open_stores("memory://", scheduler=f"eventbridge://?role={ROLE}&queue={QUEUE}")

    assert repr(of_transport.scheduler) == f"EventBridgeScheduler('{QUEUE}', group='wake-ups')"
    assert repr(of_its_own.scheduler) == f"EventBridgeScheduler('{QUEUE}', group='default')"
    assert open_scheduler(of_its_own.scheduler) is of_its_own.scheduler
    assert open_stores("memory://").scheduler is None


@pytest.mark.parametrize(
    "url",
    [
        *("", "cron://x", f"eventbridge://g?role={ROLE}", f"eventbridge://g?queue={QUEUE}"),
        f"eventbridge://g?role={ROLE}&queue={QUEUE}&x=1",
    ],
)
def test_a_scheduler_of_no_known_form_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrlError, match="is not the URL of a scheduler"):
        open_stores("memory://", scheduler=url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h/d", "postgresql://***@h/d"),
        (
            "postgresql://h/d?password=p&x=1&sslmode=require",
            "postgresql://h/d?password=***&***&sslmode=require",
        ),
        ("postgresql://h/d", "postgresql://h/d"),
        ("memory://", "memory://"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_process_is_named_by_its_machine_and_number() -> None:
    assert host_name().rpartition(":")[2].isdigit()


def test_the_newest_schema_is_a_date() -> None:
    assert date.fromisoformat(newest_schema().replace("_", "-")) >= date(2026, 11, 26)


def test_older_tables_are_to_be_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    stores = open_stores(url)
    stores.persistence.setup()
    check_schema(stores)
    (tmp_path / "versions").mkdir()
    for name in (f"{newest_schema()}_initial.py", "9999_01_01_later.py"):
        (tmp_path / "versions" / name).touch()

    monkeypatch.setattr(migrator, "MIGRATIONS", tmp_path)
    with pytest.raises(SchemaError, match=f"needs 9999_01_01: run `holdfast db upgrade {url}`"):
        check_schema(stores)
    stores.persistence.close()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0018", "2026_01_01", "9999_12_31"])
def test_tables_that_no_upgrade_takes_get_the_advice_of_the_upgrade(tmp_path: Path, version: str) -> None:
    stores = open_stores(f"sqlite:///{tmp_path}/holdfast.db")
    stores.persistence.setup()
    with closing(sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)) as tables:
        tables.execute("UPDATE holdfast_version SET version_num = ?", (version,))

    with pytest.raises(SchemaError) as upgrade:
        stores.persistence.setup()
    with pytest.raises(SchemaError) as found:
        check_schema(stores)
    stores.persistence.close()

    reason = str(upgrade.value).partition(" have version ")[2]
    assert reason
    assert str(found.value).partition(" have version ")[2] == reason
