"""The disk of a SQLite file is full for longer than any retry, and then has space again."""

import time
from hashlib import sha256

import pytest

from holdfast.adapters.files.blobs import FileBlobStore
from holdfast.ports.errors import StorageFullError, UnavailableError
from tests.chaos.disks import MIB, SmallDisk
from tests.chaos.figures import pick, report
from tests.chaos.programs import CHAIN
from tests.chaos.site import OpenSite

pytestmark = pytest.mark.chaos

RUNS = 40
FULL_SECONDS = pick(short=4.0, full=40.0)
"""In the full form longer than a worker retries its calls."""
GO_ON_WITHIN = 5.0


def test_workers_wait_for_room_and_clients_are_told(small_disk: SmallDisk, open_site: OpenSite) -> None:
    site = open_site(f"sqlite:///{small_disk.path}/holdfast.db")
    client = site.client(deadline=0.5)
    acknowledged = {site.start(CHAIN(number)): number for number in range(RUNS)}
    workers = [site.worker(f"worker-{n}", concurrency=4, work_seconds=0.05) for n in range(2)]
    site.until_started(20)
    errors: list[UnavailableError] = []
    small_disk.fill()
    began = time.monotonic()
    number = 0
    while not (errors and time.monotonic() - began > FULL_SECONDS):
        assert time.monotonic() - began < FULL_SECONDS + 30, "the disk is full, and everything works"
        small_disk.fill()
        number += 1
        try:
            acknowledged[client.start(CHAIN(number), id=f"late-{number}").id] = number
        except StorageFullError as error:
            errors.append(error)
        except UnavailableError:
            continue  # workers that try again kept the file locked
    stuck = len(site.book.entries())
    time.sleep(0.5)
    assert len(site.book.entries()) <= stuck + 8, "bodies are begun whose claims can't be stored"
    small_disk.make_room()
    freed = time.monotonic()
    site.until(lambda: len(site.book.entries()) > stuck + 8, "workers go on", 30)
    took = time.monotonic() - freed
    site.until_done(60)

    assert [worker.code for worker in workers] == [None] * 2
    results = {run: site.result(run) for run in acknowledged}
    assert results == {run: number + 5 for run, number in acknowledged.items()}
    audit = site.audit()
    report(
        f"full for {freed - began:.0f} s, clients told: {len(errors)}, acknowledged meanwhile: "
        f"{len(acknowledged) - RUNS}, work went on after {took:.1f} s, {audit}"
    )
    assert {error.code for error in errors} == {"storage_full"}
    assert all("full" in str(error) and "free space" in str(error) for error in errors)
    assert sum("disk is full" in worker.log or "disk has been full" in worker.log for worker in workers) >= 1
    assert took <= GO_ON_WITHIN


def test_a_blob_for_which_there_is_no_room_is_not_there_in_part(small_disk: SmallDisk) -> None:
    blobs = FileBlobStore(small_disk.path / "blobs")
    data = b"x" * MIB
    key = f"default/run/1/stage/1/{sha256(data).hexdigest()}"
    small_disk.fill()

    with pytest.raises(StorageFullError, match="No space left"):
        blobs.put(key, data)
    assert not blobs.exists(key)
    small_disk.make_room()
    blobs.put(key, data)
    assert blobs.get(key) == data
    assert list(blobs.list("")) == [key]
