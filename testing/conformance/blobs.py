"""The contract of `BlobStore`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

import pytest

from holdfast.ports.blobs import BLOB_KEY_MAX, AddressingBlobStore, BlobStore
from holdfast.ports.errors import BlobCorruptError, BlobMissingError, InvalidKeyError
from holdfast.testing.conformance.nasty_keys import NASTY_KEYS
from holdfast.testing.conformance.threads import in_threads


def key_of(data: bytes, folder: str = "default/run/1/bill/1") -> str:
    """Return the key of these bytes in a folder."""
    return f"{folder}/{sha256(data).hexdigest()}"


class BlobStoreContract(ABC):
    """Every promise of `BlobStore`. Derive a test class and define `make_blob_store` and `damage`."""

    @abstractmethod
    def make_blob_store(self) -> BlobStore:
        """Return an empty store."""

    @abstractmethod
    def damage(self, store: BlobStore, key: str, data: bytes) -> None:
        """Replace the bytes of a blob without the store's methods."""

    @pytest.mark.parametrize(
        "data", [b"", b"x", b"\x00\xff\r\n\x1a", "é😀".encode(), bytes(range(256)) * 16_384]
    )
    def test_what_is_put_is_got(self, data: bytes) -> None:
        """Byte for byte, whatever the bytes; and the key exists."""
        store = self.make_blob_store()
        store.put(key_of(data), data)

        assert data == store.get(key_of(data))
        assert store.exists(key_of(data))

    @pytest.mark.parametrize(
        "folder", ["a", "A-b_c.d@e=f+g", "_", "0", "a/b/c/d/e/f/g/h/i/j/k/l", "x" * 200, "a.."]
    )
    def test_every_key_that_is_well_formed_can_be_used(self, folder: str) -> None:
        """Short, deep and long keys, with every allowed character."""
        store = self.make_blob_store()
        store.put(key_of(b"1", folder), b"1")

        assert store.get(key_of(b"1", folder)) == b"1"
        assert [key_of(b"1", folder)] == list(store.list(""))

    def test_the_longest_key_can_be_used(self) -> None:
        """A key may have up to BLOB_KEY_MAX characters."""
        folder = "/".join(["x" * 200] * 4)[: BLOB_KEY_MAX - 65]
        store = self.make_blob_store()
        store.put(key_of(b"1", folder), b"1")

        assert store.get(key_of(b"1", folder)) == b"1"

    def test_a_hash_may_be_part_of_another_key(self) -> None:
        """A blob does not block another whose key extends its own key."""
        outer = key_of(b"1", "a")
        inner = key_of(b"2", outer)
        for first, second in ((outer, inner), (inner, outer)):
            store = self.make_blob_store()
            for key in (first, second):
                store.put(key, b"1" if key == outer else b"2")

            assert [store.get(outer), store.get(inner)] == [b"1", b"2"]
            assert [outer, inner] == list(store.list("a/"))

    def test_the_same_bytes_under_two_keys_are_two_blobs(self) -> None:
        """Deleting one leaves the other."""
        store = self.make_blob_store()
        store.put(key_of(b"1", "a"), b"1")
        store.put(key_of(b"1", "b"), b"1")
        store.delete(key_of(b"1", "a"))

        assert store.get(key_of(b"1", "b")) == b"1"
        assert not store.exists(key_of(b"1", "a"))

    def test_a_key_that_is_there_already_is_left_as_it_is(self) -> None:
        """Even if its bytes are damaged: a key is written only once."""
        store = self.make_blob_store()
        store.put(key_of(b"1"), b"1")
        store.put(key_of(b"1"), b"1")
        assert store.get(key_of(b"1")) == b"1"

        self.damage(store, key_of(b"1"), b"2")
        store.put(key_of(b"1"), b"1")
        with pytest.raises(BlobCorruptError):
            store.get(key_of(b"1"))

    @pytest.mark.parametrize("damaged", [b"", b"som", b"some bytes!", b"same size!"])
    def test_a_blob_that_was_damaged_is_corrupt(self, damaged: bytes) -> None:
        """Truncated, extended or changed; the error has the key, and other blobs are intact."""
        store = self.make_blob_store()
        store.put(key_of(b"some bytes"), b"some bytes")
        store.put(key_of(b"others"), b"others")
        self.damage(store, key_of(b"some bytes"), damaged)

        with pytest.raises(BlobCorruptError) as caught:
            store.get(key_of(b"some bytes"))
        assert key_of(b"some bytes") == caught.value.key
        assert store.exists(key_of(b"some bytes"))
        assert store.get(key_of(b"others")) == b"others"

    def test_a_blob_that_is_not_there_is_missing(self) -> None:
        """The error has the key. A prefix of the key, or another folder, does not match."""
        store = self.make_blob_store()
        store.put(key_of(b"1", "a/b"), b"1")

        for key in (key_of(b"1", "a"), key_of(b"1", "a/b/c"), key_of(b"2", "a/b"), key_of(b"1", "A/b")):
            assert not store.exists(key)
            with pytest.raises(BlobMissingError) as caught:
                store.get(key)
            assert key == caught.value.key

    def test_a_deleted_blob_is_gone_and_can_be_put_again(self) -> None:
        """Its neighbours stay."""
        store = self.make_blob_store()
        store.put(key_of(b"1"), b"1")
        store.put(key_of(b"2"), b"2")
        store.delete(key_of(b"1"))
        assert not store.exists(key_of(b"1"))
        assert [key_of(b"2")] == list(store.list(""))
        with pytest.raises(BlobMissingError):
            store.get(key_of(b"1"))

        store.put(key_of(b"1"), b"1")
        assert store.get(key_of(b"1")) == b"1"

    def test_deleting_what_is_not_there_does_nothing(self) -> None:
        """Neither in an empty store nor the second time."""
        store = self.make_blob_store()
        store.delete(key_of(b"1"))
        store.put(key_of(b"1"), b"1")
        store.delete(key_of(b"1"))
        store.delete(key_of(b"1"))

        assert list(store.list("")) == []

    def test_keys_are_listed_by_prefix_ascending(self) -> None:
        """A prefix may end within a part of the key. Keys are sorted by character."""
        store = self.make_blob_store()
        folders = [
            "a",
            "a+b",
            "a-b",
            "a.b",
            "a/b",
            "a/b/c",
            "a0",
            "a=b",
            "A",
            "_",
            "b",
            "ab",
            "a/b-c",
            "a/b.c",
        ]
        keys = sorted(key_of(data, folder) for folder in folders for data in (b"1", b"2"))
        for key in reversed(keys):
            store.put(key, b"1" if key == key_of(b"1", key[:-65]) else b"2")

        prefixes = (
            "",
            "a",
            "a/",
            "a/b",
            "a/b/",
            "a/b/c/",
            "a-",
            "b",
            key_of(b"1", "a"),
            key_of(b"1", "a")[:-3],
        )
        for prefix in prefixes:
            assert [key for key in keys if key.startswith(prefix)] == list(store.list(prefix)), prefix

    @pytest.mark.parametrize(
        "prefix", ["nobody", "/", "//", "../", "..", ".", "./", "a/../", "\x00", "é/", "a//b", "~"]
    )
    def test_a_prefix_of_no_key_lists_nothing(self, prefix: str) -> None:
        """Including malformed ones."""
        store = self.make_blob_store()
        store.put(key_of(b"1", "a/b"), b"1")

        assert list(store.list(prefix)) == []

    def test_blobs_may_be_deleted_while_they_are_listed(self) -> None:
        """The garbage collector does this."""
        store = self.make_blob_store()
        for number in range(50):
            store.put(key_of(b"1", f"a/{number}"), b"1")
        for key in store.list("a/"):
            store.delete(key)

        assert list(store.list("")) == []

    def test_bytes_that_do_not_have_the_hash_are_refused(self) -> None:
        """And not stored."""
        store = self.make_blob_store()
        with pytest.raises(InvalidKeyError):
            store.put(key_of(b"1"), b"2")

        assert list(store.list("")) == []

    @pytest.mark.parametrize("key", NASTY_KEYS, ids=range(len(NASTY_KEYS)))
    def test_a_malformed_key_is_refused(self, key: str) -> None:
        """By every method, and nothing is stored."""
        store = self.make_blob_store()
        for attempt in (lambda: store.put(key, b""), lambda: store.get(key), lambda: store.exists(key)):
            with pytest.raises(InvalidKeyError):
                attempt()
        with pytest.raises(InvalidKeyError):
            store.delete(key)

        assert list(store.list("")) == []

    def test_several_threads_put_the_same_blob(self) -> None:
        """All succeed, and the blob is complete whenever it can be read."""
        store = self.make_blob_store()
        data = bytes(range(256)) * 400

        def put(_: int) -> bytes:
            store.put(key_of(data), data)
            return store.get(key_of(data))

        assert [data] * 6 == in_threads(6, put)
        assert [key_of(data)] == list(store.list(""))

    def test_several_threads_put_and_delete_neighbours(self) -> None:
        """No thread deletes a blob of another."""
        store = self.make_blob_store()

        def churn(thread: int) -> None:
            data = b"%d" % thread
            for _ in range(15):
                store.put(key_of(data, "a/b/c"), data)
                assert data == store.get(key_of(data, "a/b/c"))
                store.delete(key_of(data, "a/b/c"))
            store.put(key_of(data, "a/b/c"), data)

        in_threads(4, churn)

        assert len(list(store.list(""))) == 4


class AddressingBlobStoreContract(ABC):
    """Every promise of `AddressingBlobStore`, over HTTP. Derive a test class and define `make_addressing_store`."""

    @abstractmethod
    def make_addressing_store(self) -> AddressingBlobStore:
        """Return an empty store."""

    def test_the_url_of_a_key_gives_its_bytes(self) -> None:
        """Without any other credential. A missing key has no content."""
        store = self.make_addressing_store()
        store.put(key_of(b"\x00\xff"), b"\x00\xff")

        assert _sent("GET", store.download_url(key_of(b"\x00\xff"), _LIFETIME)) == (200, b"\x00\xff")
        assert _sent("GET", store.download_url(key_of(b"2"), _LIFETIME))[0] in {403, 404}

    @pytest.mark.parametrize("data", [b"x", bytes(range(256)) * 1_024])
    def test_what_is_sent_to_an_address_is_stored(self, data: bytes) -> None:
        """With the headers of the address. Sent again, it is left as it is."""
        store = self.make_addressing_store()
        address = store.upload_address(key_of(data), len(data), _LIFETIME)
        assert address is not None

        statuses = [_sent("PUT", address.url, data, dict(address.headers))[0] for _ in range(2)]

        assert (statuses[0], store.get(key_of(data))) == (200, data)
        assert statuses[1] in {200, 412}

    def test_other_bytes_are_refused(self) -> None:
        """Those with another length or another hash: a worker can't store what the key does not name."""
        store = self.make_addressing_store()
        address = store.upload_address(key_of(b"abc"), 3, _LIFETIME)
        assert address is not None
        headers = dict(address.headers)
        for data in (b"abd", b"abcd"):
            sent = {**headers, "content-length": str(len(data))}
            assert _sent("PUT", address.url, data, sent)[0] >= 400
        assert not store.exists(key_of(b"abc"))

    def test_a_malformed_key_has_no_address(self) -> None:
        """And is never part of a URL."""
        store = self.make_addressing_store()
        for key in NASTY_KEYS:
            with pytest.raises(InvalidKeyError):
                store.download_url(key, _LIFETIME)
            with pytest.raises(InvalidKeyError):
                store.upload_address(key, 1, _LIFETIME)


_LIFETIME = timedelta(minutes=1)


def _sent(
    method: str, url: str | None, data: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    assert url is not None
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", data, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
