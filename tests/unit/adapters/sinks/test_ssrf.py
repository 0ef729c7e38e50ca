"""The addresses that count as internal."""

import pytest

from holdfast.adapters.sinks.ssrf import addresses_of, is_internal


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "100.100.100.200",  # metadata of Alibaba Cloud
        "169.254.169.254",  # metadata of most clouds
        "168.63.129.16",  # the inside of Azure
        "192.0.0.192",  # metadata of Oracle's
        "198.18.0.1",
        "192.0.2.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:a00:1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2001::1",  # Teredo
        "2001:db8::1",
        "fc00::1",
        "fd00:ec2::254",  # metadata of AWS
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "100::1",
        "64:ff9b:1::1",
    ],
)
def test_an_internal_address_is_told(address: str) -> None:
    assert is_internal(address)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "93.184.215.14", "172.32.0.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"],
)
def test_an_address_of_the_internet_is_not(address: str) -> None:
    assert not is_internal(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "localhost"])
def test_a_host_in_other_words_is_the_same_address(host: str) -> None:
    assert all(is_internal(address) for address in addresses_of(host, 80))
    assert "127.0.0.1" in addresses_of(host, 80) or "::1" in addresses_of(host, 80)
