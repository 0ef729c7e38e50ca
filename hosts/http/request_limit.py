"""A limit on the requests of each principal, in this process: a token bucket for each."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from holdfast.hosts.http.principals import Principal
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.request_record import RATE_LIMITED
from holdfast.ports.errors import InvalidArgumentError

BURST: Final = 2.0
"""The seconds of requests that a principal may send at once, after a pause."""
PRINCIPALS_MAX: Final = 10_000
"""How many principals are remembered. The one whose last request is the oldest is forgotten first."""


class RequestLimit:
    """Refuses requests of a principal beyond a rate. Other principals do not notice.

    Args:
        rate: Requests per second of each principal, on average. Twice as many may come at once.
        monotonic: Returns seconds.

    Raises:
        InvalidArgumentError: The rate is not positive.
    """

    def __init__(self, rate: float, monotonic: Callable[[], float]) -> None:
        if not 0 < rate < float("inf"):
            raise InvalidArgumentError(
                "rate_limit", f"rate_limit is {rate}; give a positive number of requests per second"
            )
        self._rate = rate
        self._size = max(rate * BURST, 1.0)
        self._monotonic = monotonic
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def check(self, principal: Principal) -> None:
        """Count a request. HttpError, with how long to wait, if there were too many: it does not count then."""
        now, name = self._monotonic(), (principal.kind, principal.id)
        level, at = self._buckets.get(name, (self._size, now))
        level = min(self._size, level + (now - at) * self._rate)
        if level < 1:
            raise HttpError(
                RATE_LIMITED,
                f"at most {self._rate:g} requests per second are answered for one principal",
                retry_after=(1 - level) / self._rate,
            )
        self._buckets[name] = (level - 1, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > PRINCIPALS_MAX:
            self._buckets.popitem(last=False)
