"""An AWS region and databases."""

import secrets
from collections.abc import Iterator

import pytest

from tests.aws import FakeAws, fake_aws
from tests.postgres import fresh_database


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as region:
        yield region


@pytest.fixture(scope="session")
def shared_database(postgres_url: str) -> Iterator[str]:
    """A database that these tests share: each has its own namespace in it."""
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture
def namespace() -> str:
    """A namespace for one test."""
    return f"test-{secrets.token_hex(6)}"
