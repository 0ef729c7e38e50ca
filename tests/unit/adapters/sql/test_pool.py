"""The pool of connections: what it keeps, and what it closes."""

import pytest

from holdfast.adapters.sql.errors import TransientError
from holdfast.adapters.sql.pool import Pool


class _Connection:
    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def pool() -> Pool[_Connection]:
    """A pool that lends two connections."""
    return Pool(lambda _seconds: _Connection(), size=2, kept=2, age_seconds=60.0)


def test_the_connection_returned_last_is_lent_first(pool: Pool[_Connection]) -> None:
    first, second = pool.take(1.0), pool.take(1.0)
    pool.release(first, is_sound=True)
    pool.release(second, is_sound=True)
    assert pool.take(1.0) is second


def test_a_call_waits_for_no_longer_than_its_deadline(pool: Pool[_Connection]) -> None:
    lent = [pool.take(1.0), pool.take(1.0)]
    with pytest.raises(TransientError, match="all 2 connections"):
        pool.take(0.0)
    pool.release(lent[0], is_sound=True)
    assert pool.take(0.0) is lent[0]


def test_one_broken_connection_closes_all_idle_ones(pool: Pool[_Connection]) -> None:
    idle, broken = pool.take(1.0), pool.take(1.0)
    pool.release(idle, is_sound=True)
    pool.release(broken, is_sound=False)
    assert not idle.connection.is_open
    assert not broken.connection.is_open


def test_a_connection_in_use_when_another_broke_is_kept(pool: Pool[_Connection]) -> None:
    in_use, broken = pool.take(1.0), pool.take(1.0)
    pool.release(broken, is_sound=False)
    pool.release(in_use, is_sound=True)
    assert pool.take(1.0) is in_use


def test_a_connection_in_use_when_the_pool_closes_is_closed_when_it_is_returned(
    pool: Pool[_Connection],
) -> None:
    lent = pool.take(1.0)
    pool.close()
    assert lent.connection.is_open
    pool.release(lent, is_sound=True)
    assert not lent.connection.is_open


def test_a_pool_that_was_closed_lends_and_keeps_new_connections(pool: Pool[_Connection]) -> None:
    pool.close()
    lent = pool.take(1.0)
    pool.release(lent, is_sound=True)
    assert pool.take(1.0) is lent


def test_a_paused_pool_lends_nothing(pool: Pool[_Connection]) -> None:
    idle = pool.take(1.0)
    pool.release(idle, is_sound=True)
    assert pool.pause(1.0)
    assert not idle.connection.is_open
    with pytest.raises(TransientError):
        pool.take(0.0)
    pool.resume()
    assert pool.take(0.0).connection.is_open


def test_a_pool_with_a_connection_in_use_is_not_paused(pool: Pool[_Connection]) -> None:
    lent = pool.take(1.0)
    assert not pool.pause(0.0)
    pool.release(lent, is_sound=True)
    assert lent.connection.is_open
