"""The adapters for AWS keep the promises of the ports, asked over HTTP."""

from collections.abc import Iterator

import pytest
from typing_extensions import override

from holdfast.adapters.aws.s3 import S3BlobStore
from holdfast.adapters.aws.sqs import SqsJobTransport
from holdfast.ports.blobs import BlobStore
from holdfast.ports.transport import JobTransport
from holdfast.testing.conformance.blobs import BlobStoreContract, key_of
from holdfast.testing.conformance.transport import RedeliveryContract
from tests.aws import FakeAws, fake_aws


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as region:
        yield region


class TestS3BlobStore(BlobStoreContract):
    """In a bucket, under a prefix. Without one keys are what they are: `test_a_bucket_needs_no_prefix`."""

    below = "holdfast/blobs"

    @pytest.fixture(autouse=True)
    def region(self, aws: FakeAws) -> None:
        self.aws = aws

    @override
    def make_blob_store(self) -> BlobStore:
        self.client, self.bucket = self.aws.new_bucket()
        return S3BlobStore(self.bucket, self.below, client=self.client)

    @override
    def damage(self, store: BlobStore, key: str, data: bytes) -> None:
        place = f"{self.below}/{key}"
        assert self.client.head_object(Bucket=self.bucket, Key=place)
        self.client.put_object(Bucket=self.bucket, Key=place, Body=data)


def test_a_bucket_needs_no_prefix(aws: FakeAws) -> None:
    client, bucket = aws.new_bucket()
    store = S3BlobStore(bucket, client=client)
    store.put(key_of(b"1"), b"1")

    assert client.get_object(Bucket=bucket, Key=key_of(b"1"))["Body"].read() == b"1"
    assert (store.get(key_of(b"1")), list(store.list(""))) == (b"1", [key_of(b"1")])


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
class TestSqsJobTransport(RedeliveryContract):
    """Over a queue."""

    tells_of_runs = False
    is_exact = False

    @pytest.fixture(autouse=True)
    def region(self, aws: FakeAws, *, fifo: bool) -> None:
        self.aws = aws
        self.fifo = fifo

    @override
    def make_transport(self) -> JobTransport:
        client, url = self.aws.new_queue(fifo=self.fifo)
        return SqsJobTransport(url, client=client, poll_seconds=1)

    @override
    def pass_time(self, seconds: float) -> None:
        self.aws.pass_time(seconds)
