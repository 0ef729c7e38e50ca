"""Protection against server-side request forgery (SSRF): which addresses are internal, and which are public."""

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_GLOBAL: Final = IPv6Network("2000::/3")
_MAPPED: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("::/96"), IPv6Network("64:ff9b::/96"))
"""IPv6 addresses that embed an IPv4 address: mapped, compatible, and NAT64."""
_6TO4: Final = IPv6Network("2002::/16")
_INSIDE: Final = (IPv4Network("168.63.129.16/32"), IPv4Network("192.0.0.0/24"))
"""The metadata services of Azure and Oracle Cloud. Some versions of Python count the latter as global."""
_INSIDE_6: Final = (IPv6Network("2001::/23"), IPv6Network("2001:db8::/32"), IPv6Network("3fff::/20"))
"""Teredo and other tunnels, and documentation addresses. Some versions of Python count these as global too."""


def addresses_of(host: str, port: int) -> list[str]:
    """Return the addresses of a host, in the order to try them. OSError if the lookup fails."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_address(text: str) -> bool:
    """Whether a text is an IP address, and not a name to look up."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_internal(address: str) -> bool:
    """Whether an address is local, private, link-local (metadata services), or not assigned.

    An IPv6 address with an embedded IPv4 address is judged by that one. ValueError if the text is not an address.
    """
    found = ip_address(address)
    if isinstance(found, IPv6Address):
        inner = _inner(found)
        if inner is None:
            return found not in _GLOBAL or not found.is_global or any(found in one for one in _INSIDE_6)
        found = inner
    return not found.is_global or found.is_multicast or any(found in one for one in _INSIDE)


def _inner(address: IPv6Address) -> IPv4Address | None:
    if any(address in one for one in _MAPPED):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _6TO4:
        return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    return None
