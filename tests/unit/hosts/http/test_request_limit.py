"""The limit on requests: a rate for each principal, and a burst after a pause."""

import pytest

from holdfast.errors import InvalidArgumentError
from holdfast.hosts.http.principals import Principal
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.request_limit import PRINCIPALS_MAX, RequestLimit


def a_principal(name: str) -> Principal:
    return Principal(id=name, scopes=frozenset(), namespaces=frozenset())


class Limit:
    """A limit of ten requests per second, whose time passes when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.limit = RequestLimit(10, lambda: self.seconds)

    def answered(self, name: str, number: int) -> int:
        """Return how many of some requests at once are answered."""
        refusals: list[HttpError] = []
        for _ in range(number):
            try:
                self.limit.check(a_principal(name))
            except HttpError as error:
                refusals.append(error)
        assert all(one.code == "too_many_requests" for one in refusals)
        assert all(0 < (one.retry_after or 0) <= 0.1 for one in refusals)
        return number - len(refusals)


def test_two_seconds_of_requests_may_come_at_once_and_then_the_rate_counts() -> None:
    limit = Limit()
    assert limit.answered("ann", 25) == 20
    limit.seconds = 0.5
    assert limit.answered("ann", 25) == 5
    limit.seconds = 1_000
    assert limit.answered("ann", 25) == 20


def test_a_refused_request_does_not_count() -> None:
    limit = Limit()
    assert limit.answered("ann", 100) == 20
    limit.seconds = 0.1
    assert limit.answered("ann", 1) == 1


def test_each_principal_has_a_rate_of_its_own() -> None:
    limit = Limit()
    assert limit.answered("ann", 25) == 20
    assert limit.answered("bob", 25) == 20


def test_a_bounded_number_of_principals_is_remembered() -> None:
    limit = Limit()
    assert limit.answered("first", 25) == 20
    for number in range(PRINCIPALS_MAX):
        limit.answered(str(number), 1)
    assert limit.answered("first", 25) == 20


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
def test_a_rate_that_is_not_positive_is_refused(rate: float) -> None:
    with pytest.raises(InvalidArgumentError, match="rate_limit"):
        RequestLimit(rate, lambda: 0.0)
