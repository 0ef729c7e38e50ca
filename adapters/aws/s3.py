"""Blobs in a bucket of Amazon S3, or of what speaks as it does."""

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError
from typing_extensions import override
from urllib3.exceptions import HTTPError

from holdfast.adapters.aws.client import code_of, config, new_client, reported, status_of
from holdfast.ports.blobs import BLOB_KEY_MAX, check_blob_key, is_blob_key, is_blob_key_part
from holdfast.ports.errors import (
    BlobCorruptError,
    BlobMissingError,
    InvalidKeyError,
    InvalidUrlError,
    UnavailableError,
)
from holdfast.ports.urls import shown_url
from holdfast.ports.validation import TEXT, check

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

KEY_MAX: Final = 1_024
"""How many bytes S3 allows a key."""
PREFIX_MAX: Final = KEY_MAX - BLOB_KEY_MAX - 1
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]{3,255}|arn:[\w:/.-]{1,300}", re.ASCII)
_ABSENT: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_THERE: Final = 412
_IN_USE: Final = 409
_TRIES_MAX: Final = 5
_CONFIG: Final = config(connect_timeout=5, read_timeout=30, attempts=4)


class S3BlobStore:
    """Blobs in a bucket. See `BlobStore`; safe to use from several threads.

    A put is on the condition that the key is not there (`If-None-Match: *`), and is sent with its sha256, which S3
    checks before it keeps anything. So a key that can be read is whole, and is never written for the second time. Every
    read is checked against the hash in its key as well.

    What may be done in the bucket is up to whoever runs this: `s3:GetObject`, `s3:PutObject`, `s3:DeleteObject` on the
    prefix and, so that what is missing is told from what is forbidden, `s3:ListBucket` on the bucket.
    """

    def __init__(self, bucket: str, prefix: str = "", *, client: "S3Client | None" = None) -> None:
        """Take a bucket, which has to be there; nothing is called yet.

        Args:
            bucket: Its name.
            prefix: What all keys begin with, without `/` at its end: parts joined by `/`, at most 123 characters.
            client: A client of boto3's, where region, credentials and endpoint are not to be found as boto3 does by
                itself.

        Raises:
            InvalidUrlError: The bucket or the prefix can't be.
            InvalidArgumentError: One of these is no text.
        """
        check("S3BlobStore", TEXT, bucket=bucket, prefix=prefix)
        if not _BUCKET.fullmatch(bucket):
            raise InvalidUrlError(
                f"{shown_url(bucket)!r} is no bucket: 3 to 63 of a-z 0-9 . - _, or the ARN of an access point, without"
                " credentials, which are found as boto3 does"
            )
        if prefix and (len(prefix) > PREFIX_MAX or not all(map(is_blob_key_part, prefix.split("/")))):
            raise InvalidUrlError(
                f"{shown_url(prefix[:200])!r} is no prefix of blobs: parts of A-Z a-z 0-9 _ . @ = + - joined by /, at"
                f" most {PREFIX_MAX} characters"
            )
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client: S3Client = client or new_client("S3BlobStore", "s3", _CONFIG)

    @override
    def __repr__(self) -> str:
        return f"S3BlobStore({self._bucket!r}, {self._prefix.rstrip('/')!r})"

    def put(self, key: str, data: bytes, /) -> None:
        """Store bytes, durably. A key that is there already is left as it is."""
        place = self._place(key)
        digest = sha256(data).digest()
        if digest.hex() != key[-64:]:
            raise InvalidKeyError(
                f"{key[:200]!r} does not end in the sha256 of the bytes that are to be stored"
            )
        with reported(f"put a blob in bucket {self._bucket!r}"):
            for tried in range(1, _TRIES_MAX + 1):
                try:
                    self._client.put_object(
                        Bucket=self._bucket,
                        Key=place,
                        Body=data,
                        IfNoneMatch="*",
                        ChecksumSHA256=b64encode(digest).decode(),
                    )
                except ClientError as error:
                    if status_of(error) == _THERE:
                        return
                    # Another is putting or deleting the same key: who comes last is to look again.
                    if status_of(error) != _IN_USE or tried == _TRIES_MAX:
                        raise
                else:
                    return

    def get(self, key: str, /) -> bytes:
        """Return the bytes. BlobMissingError if there are none; BlobCorruptError if they do not match their hash."""
        place = self._place(key)
        doing = f"get a blob from bucket {self._bucket!r}"
        with reported(doing):
            try:
                data = self._client.get_object(Bucket=self._bucket, Key=place)["Body"].read()
            except ClientError as error:
                if code_of(error) in _ABSENT:
                    raise BlobMissingError(key) from error
                raise
            except HTTPError as error:
                raise UnavailableError(f"could not {doing}: {error}") from error
        if sha256(data).hexdigest() != key[-64:]:
            raise BlobCorruptError(key)
        return data

    def exists(self, key: str, /) -> bool:
        """Return whether there is a blob of this key."""
        place = self._place(key)
        with reported(f"look for a blob in bucket {self._bucket!r}"):
            try:
                self._client.head_object(Bucket=self._bucket, Key=place)
            except ClientError as error:
                if code_of(error) in _ABSENT:
                    return False
                raise
        return True

    def delete(self, key: str, /) -> None:
        """Take a blob away; nothing happens if there is none. In a bucket with versions the old one stays hidden."""
        place = self._place(key)
        with reported(f"delete a blob from bucket {self._bucket!r}"):
            self._client.delete_object(Bucket=self._bucket, Key=place)

    def list(self, prefix: str, /) -> Iterator[str]:
        """Yield the keys that start with `prefix`, ascending. What comes and goes meanwhile may or may not be in it."""
        parts = prefix.split("/")
        if len(prefix) > BLOB_KEY_MAX or not all(map(is_blob_key_part, parts[:-1])):
            return
        if parts[-1] and not is_blob_key_part(parts[-1]):
            return
        with reported(f"list blobs of bucket {self._bucket!r}"):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix):
                for found in page.get("Contents", ()):
                    key = found.get("Key", "")[len(self._prefix) :]
                    if is_blob_key(key):
                        yield key

    def _place(self, key: str) -> str:
        check_blob_key(key)
        return self._prefix + key
