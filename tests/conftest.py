"""What all tests share: a PostgreSQL, and how hypothesis behaves."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.postgres import PrivatePostgres, fresh_database, plain_url

# A busy machine is no finding. hypothesis has a profile of its own for CI, which it chooses there by itself.
if not os.environ.get("CI"):
    settings.register_profile("holdfast", deadline=None)
    settings.load_profile("holdfast")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a server: `postgresql://user@host:port/database`.

    Of HOLDFAST_TEST_POSTGRES_URL if that is set; its user must be allowed to create databases. Otherwise of a server
    that is started for these tests, one for each worker process of pytest-xdist.
    """
    if given := os.environ.get("HOLDFAST_TEST_POSTGRES_URL"):
        yield plain_url(given)
        return
    with PrivatePostgres() as server:
        yield server.url


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """The URL of an empty database of the test's own, which is dropped afterwards."""
    with fresh_database(postgres_url) as url:
        yield url
