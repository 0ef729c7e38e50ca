"""Signatures of webhooks, and valid secrets."""

import hmac
from base64 import b64decode, b64encode
from typing import Any

import pytest

from holdfast.adapters.sinks.signing import Signer
from holdfast.ports.errors import InvalidArgumentError

OLD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEW = "whsec_" + b64encode(bytes(range(64))).decode()


def test_it_signs_as_the_specification_of_standard_webhooks_does() -> None:
    headers = Signer("x", OLD).headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_while_secrets_change_each_of_them_signs() -> None:
    signatures = Signer("x", [NEW, OLD]).headers("a/1", 5, b"body")["webhook-signature"].split(" ")

    expected = [hmac.digest(b64decode(secret[6:]), b"a/1.5.body", "sha256") for secret in (NEW, OLD)]
    assert signatures == ["v1," + b64encode(digest).decode() for digest in expected]


def test_without_a_secret_nothing_is_signed() -> None:
    assert Signer("x", ()).headers("a/1", 5, b"body") == {}


@pytest.mark.parametrize(
    "secrets",
    [
        "",
        "s3cret",
        OLD.removeprefix("whsec_"),
        "whsec_",
        "whsec_s3cret!!",
        "whsec_" + b64encode(b"s3cret" * 3).decode(),
        "whsec_" + b64encode(b"s3cret" * 11).decode(),
        [OLD, "s3cret"],
        [OLD, 5],
        [OLD, b"s3cret"],
    ],
)
def test_what_is_no_secret_is_refused_and_not_shown(secrets: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="24 to 64 bytes in base64") as caught:
        Signer("x", secrets)

    assert "s3cret" not in str(caught.value)
    assert "Mf" not in str(caught.value) + repr(Signer("x", OLD))
