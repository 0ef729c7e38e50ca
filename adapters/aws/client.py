"""Clients of boto3 and the meaning of their errors, for all adapters of AWS."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from holdfast.ports.errors import InvalidArgumentError, UnavailableError
from holdfast.ports.process_forks import leave_alone, renew_in_forks


def config(*, connect_timeout: float, read_timeout: float, attempts: int) -> Config:
    """Return the configuration of a client that retries transient failures."""
    return Config(
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        retries={"mode": "standard", "total_max_attempts": attempts},
        tcp_keepalive=True,
        user_agent_extra="holdfast",
    )


def new_client(who: str, service: str, config: Config, region: str | None = None) -> Any:
    """Return a boto3 client for a region, by default the one that boto3 finds.

    InvalidArgumentError if it can't be created, for example because no region is configured.
    """

    def make() -> Any:
        session: Any = boto3.Session()  # the default session is not thread-safe
        try:
            return session.client(service, region_name=region, config=config)
        except BotoCoreError as error:
            message = (
                f"{who} can't create a client: {error} Set AWS_DEFAULT_REGION, for example, or pass `client`"
            )
            raise InvalidArgumentError("client", message) from error

    return _Client(make)


class _Client:
    """A boto3 client, replaced in a forked child: two processes must not share its connections."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = make()
        renew_in_forks(self)

    def renew(self) -> None:
        """Drop the client. The next use creates another one."""
        leave_alone(self._made)
        self._made = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = self._make()
        return getattr(self._made, name)


def region_of(name: str) -> str | None:
    """Return the region in an ARN; None for a plain name."""
    parts = name.split(":")
    return parts[3] or None if parts[0] == "arn" and len(parts) > 5 else None


@contextmanager
def reported(doing: str) -> Generator[None]:
    """Turn the errors of an AWS call into UnavailableError, with the purpose of the call in its message."""
    try:
        yield
    except ClientError as error:
        raise UnavailableError(f"could not {doing}: {error_text(error)}") from error
    except (BotoCoreError, HTTPClientError, OSError) as error:
        raise UnavailableError(f"could not {doing}: {error}") from error
    except ResponseParserError as error:  # the answer of a proxy in between, for example
        raise UnavailableError(f"could not {doing}: unexpected response") from error


def code_of(error: ClientError) -> str:
    """Return the code of an error, such as `NoSuchKey`; the HTTP status if the response has no body."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an error; 0 without one."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def error_text(error: ClientError) -> str:
    """Return the message of an error, for people."""
    details = error.response.get("Error", {})
    return f"{details.get('Code', status_of(error))}: {details.get('Message', '')}".rstrip(": ")
