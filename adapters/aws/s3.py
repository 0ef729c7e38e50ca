"""Blobs in a bucket of Amazon S3, or of a compatible service."""

import re
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from botocore.config import Config
from botocore.exceptions import ClientError
from typing_extensions import override
from urllib3.exceptions import HTTPError

from holdfast.adapters.aws.client import code_of, config, new_client, reported, status_of
from holdfast.ports.blobs import BLOB_KEY_MAX, UploadAddress, check_blob_key, is_blob_key, is_blob_key_part
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
"""The most bytes that S3 allows for a key."""
PREFIX_MAX: Final = KEY_MAX - BLOB_KEY_MAX - 1
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]{3,255}|arn:[\w:/.-]{1,300}", re.ASCII)
_ABSENT: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_THERE: Final = 412
_IN_USE: Final = 409
_TRIES_MAX: Final = 5
_CONFIG: Final = config(connect_timeout=5, read_timeout=30, attempts=4).merge(
    Config(signature_version="s3v4")
)


class S3BlobStore:
    """A BlobStore in a bucket. Safe to use from several threads.

    A put is conditional on the key being absent (`If-None-Match: *`), and carries its sha256, which S3 verifies before
    storing. So a key that can be read is complete, and is never overwritten. Every read is verified against the hash in
    the key as well.

    The role needs `s3:GetObject`, `s3:PutObject` and `s3:DeleteObject` on the prefix and `s3:ListBucket` on the bucket,
    without which a missing blob looks like a forbidden one.
    """

    def __init__(self, bucket: str, prefix: str = "", *, client: "S3Client | None" = None) -> None:
        """Configure the store, without calling AWS. The bucket must exist.

        Args:
            bucket: Its name.
            prefix: The prefix of all keys, without a final `/`: parts joined by `/`, at most 123 characters.
            client: A boto3 client, if boto3's defaults for region, credentials and endpoint do not fit.

        Raises:
            InvalidUrlError: The bucket or the prefix is invalid.
            InvalidArgumentError: One of these is not a string.
        """
        check("S3BlobStore", TEXT, bucket=bucket, prefix=prefix)
        if not _BUCKET.fullmatch(bucket):
            raise InvalidUrlError(
                f"{shown_url(bucket)!r} is not a bucket: 3 to 63 of a-z 0-9 . - _, or the ARN of an access point,"
                " without credentials, which boto3 finds"
            )
        if prefix and (len(prefix) > PREFIX_MAX or not all(map(is_blob_key_part, prefix.split("/")))):
            raise InvalidUrlError(
                f"{shown_url(prefix[:200])!r} is not a blob prefix: parts of A-Z a-z 0-9 _ . @ = + - joined by /, at"
                f" most {PREFIX_MAX} characters"
            )
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client: S3Client = client or new_client("S3BlobStore", "s3", _CONFIG)

    @override
    def __repr__(self) -> str:
        return f"S3BlobStore({self._bucket!r}, {self._prefix.rstrip('/')!r})"

    def put(self, key: str, data: bytes, /) -> None:
        """Store bytes durably. An existing key is left as it is."""
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
                    # A conflict with a concurrent put or delete of the key: try again.
                    if status_of(error) != _IN_USE or tried == _TRIES_MAX:
                        raise
                else:
                    return

    def get(self, key: str, /) -> bytes:
        """Return the bytes. BlobMissingError if the key does not exist; BlobCorruptError if the hash does not match."""
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
        """Return whether a blob with this key exists."""
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
        """Delete a blob. Does nothing if the key does not exist. A versioned bucket keeps the old version, hidden."""
        place = self._place(key)
        with reported(f"delete a blob from bucket {self._bucket!r}"):
            self._client.delete_object(Bucket=self._bucket, Key=place)

    def list(self, prefix: str, /) -> Iterator[str]:
        """Yield the keys that start with `prefix`, ascending. Concurrent changes may or may not be included."""
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

    def download_url(self, key: str, lifetime: timedelta, /) -> str | None:
        """Return a presigned URL of the bytes of this key, for this long. Does not call S3.

        None with a client of the region us-east-1 that has no `signature_version="s3v4"` in its config.
        """
        return self._signed("get_object", lifetime, Key=self._place(key))

    def upload_address(self, key: str, size: int, lifetime: timedelta, /) -> UploadAddress | None:
        """Return a presigned URL for a PUT of bytes of this length, and its headers; None as `download_url` does.

        S3 verifies length and hash, as both are signed, and leaves an existing key as it is, with the status 412.
        """
        place, digest = self._place(key), b64encode(bytes.fromhex(key[-64:])).decode()
        url = self._signed(
            "put_object", lifetime, Key=place, ContentLength=size, IfNoneMatch="*", ChecksumSHA256=digest
        )
        headers = (
            ("content-length", str(size)),
            ("if-none-match", "*"),
            ("x-amz-checksum-sha256", digest),
        )
        return None if url is None else UploadAddress(url=url, headers=headers)

    def _signed(self, method: str, lifetime: timedelta, **parameters: object) -> str | None:
        with reported(f"sign a URL of bucket {self._bucket!r}"):
            url = self._client.generate_presigned_url(
                method,
                Params={"Bucket": self._bucket, **parameters},
                ExpiresIn=max(1, int(lifetime.total_seconds())),
            )
        # The signature before version 4, the default of some clients in us-east-1, covers neither length nor hash.
        return url if "X-Amz-Signature=" in url else None

    def _place(self, key: str) -> str:
        check_blob_key(key)
        return self._prefix + key
