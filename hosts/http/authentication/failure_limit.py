"""The limit on failed authentications of one address."""

import ipaddress
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

FAILURES_MAX: Final = 10
"""How many failures of an address are allowed in `PERIOD`."""
PERIOD: Final = 60.0
"""In seconds."""
ADDRESSES_MAX: Final = 10_000
"""How many addresses are remembered. The one that has failed least recently is forgotten first."""
_IPV6_PREFIX: Final = 64


class FailureLimit:
    """Counts the failed authentications of each address in the last minute. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Return for how many seconds the address has failed too often; 0 if it has not."""
        failures = self._failures.get(_network(address))
        if failures is None or len(failures) < FAILURES_MAX:
            return 0.0
        return max(0.0, failures[0] + PERIOD - self._monotonic())

    def note_failure(self, address: str) -> None:
        """Count a failure."""
        network = _network(address)
        failures = self._failures.setdefault(network, deque(maxlen=FAILURES_MAX))
        failures.append(self._monotonic())
        self._failures.move_to_end(network)
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)


def _network(address: str) -> str:
    """Return what counts as one address: of IPv6 the network of a customer, whose addresses are countless."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
