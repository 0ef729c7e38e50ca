"""What all adapters for AWS share: how clients are made, and what their errors mean."""

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
    """Return how a client behaves that was not given: it tries again by itself what fails for a moment."""
    return Config(
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        retries={"mode": "standard", "total_max_attempts": attempts},
        tcp_keepalive=True,
        user_agent_extra="holdfast",
    )


def new_client(who: str, service: str, config: Config, region: str | None = None) -> Any:
    """Return a client of boto3's, for a region, or the one that boto3 finds.

    InvalidArgumentError where it can't be made, for no region is found, say.
    """

    def make() -> Any:
        session: Any = boto3.Session()  # of its own: the default one is not to be used by several threads
        try:
            return session.client(service, region_name=region, config=config)
        except BotoCoreError as error:
            message = f"{who} can't make a client: {error} Set AWS_DEFAULT_REGION, say, or give `client`"
            raise InvalidArgumentError("client", message) from error

    return _Client(make)


class _Client:
    """A client of boto3's, and another one in a forked child: two processes must not share its connections."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = make()
        renew_in_forks(self)

    def renew(self) -> None:
        """Have another made when it is used next."""
        leave_alone(self._made)
        self._made = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = self._make()
        return getattr(self._made, name)


def region_of(name: str) -> str | None:
    """Return the region that an ARN names; None if it is no ARN, but a plain name."""
    parts = name.split(":")
    return parts[3] or None if parts[0] == "arn" and len(parts) > 5 else None


@contextmanager
def reported(doing: str) -> Generator[None]:
    """Raise UnavailableError for whatever a call of AWS raises: what was to be done, and what it said."""
    try:
        yield
    except ClientError as error:
        raise UnavailableError(f"could not {doing}: {error_text(error)}") from error
    except (BotoCoreError, HTTPClientError, OSError) as error:
        raise UnavailableError(f"could not {doing}: {error}") from error
    except ResponseParserError as error:  # what a proxy says that is in the way, say
        raise UnavailableError(f"could not {doing}: an answer that makes no sense") from error


def code_of(error: ClientError) -> str:
    """Return the code of an error, as `NoSuchKey`. Where there is no body to read one from it is the HTTP status."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an error; 0 if there is none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def error_text(error: ClientError) -> str:
    """Return what an error says, for people."""
    details = error.response.get("Error", {})
    return f"{details.get('Code', status_of(error))}: {details.get('Message', '')}".rstrip(": ")
