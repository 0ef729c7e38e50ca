"""Authentication by JSON Web Tokens of one issuer (RFC 7519, RFC 8725), such as those of OpenID Connect."""

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, cast

import attrs

from holdfast.hosts.http.authentication.key_set import Jwk, KeySet
from holdfast.hosts.http.authentication.verified_credentials import VerifiedCredential
from holdfast.hosts.http.principals import Principal, Scope
from holdfast.ports.errors import InvalidArgumentError

ALGORITHMS: Final[Mapping[str, str]] = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
"""The signatures that are accepted, each with the type of its key. All are asymmetric."""
LEEWAY: Final = 30
"""Seconds by which the clocks of the issuer and of this machine may differ."""
RSA_BITS_MIN: Final = 2_048
_KEYS_OF_TOKENS: Final = frozenset({"jku", "jwk", "x5u", "x5c", "crit"})
"""A token with one of these in its header names its own key, or has a meaning that is not known here."""
_GRANT: Final = re.compile(r"(?P<claim>[^:=@\s]+):(?P<value>[^=]+)=(?P<scopes>[a-z,]+)@(?P<namespaces>\S+)")


@attrs.frozen
class Grant:
    """What the principals get whose tokens have a claim with a value."""

    claim: str
    value: str
    """The value of the claim, one of its list, or one of its words."""
    scopes: frozenset[Scope]
    namespaces: frozenset[str]

    @classmethod
    def of(cls, text: str) -> "Grant":
        """Return the grant that a text describes, such as `groups:holdfast-team=read,start@shop`.

        Raises InvalidArgumentError.
        """
        found = _GRANT.fullmatch(text)
        known = [scope.value for scope in Scope]
        scopes = [] if found is None else found["scopes"].split(",")
        if found is None or not set(scopes) <= set(known):
            raise InvalidArgumentError(
                "grant",
                f"{text!r:.200} is not a grant: write CLAIM:VALUE=SCOPES@NAMESPACES, such as "
                f"groups:operators=read,operate@shop; the scopes are {', '.join(known)}, and * is all namespaces",
            )
        namespaces = frozenset(found["namespaces"].split(","))
        return cls(found["claim"], found["value"], frozenset(map(Scope, scopes)), namespaces)


class Tokens:
    """Checks tokens: their signature, issuer, audience and times.

    Args:
        issuer: The issuer, as it stands in the tokens.
        audience: The audience that tokens must name: this server.
        grants: What claims allow. The first that fits decides; a token to which none does is refused.
        keys: The public keys of the issuer; read from it by default.
        algorithms: The signatures that are accepted, some of `ALGORITHMS`.
        subject: The claim that names the principal, in audit entries and histories. Take one that no two people share
            and that nobody can choose: `sub`, or `email` of a provider that verifies addresses.

    Raises:
        InvalidArgumentError: An algorithm is not one of them, or there is no grant.
        InvalidUrlError: The issuer is not an https URL.
        ModuleNotFoundError: PyJWT is not installed.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        grants: Iterable[Grant],
        keys: KeySet | None = None,
        algorithms: Sequence[str] = tuple(ALGORITHMS),
        subject: str = "sub",
    ) -> None:
        _check_installed()
        self.issuer = issuer
        """The issuer."""
        self._subject = subject
        self._audience = audience
        self._grants = tuple(grants)
        self._keys = KeySet(issuer) if keys is None else keys
        self._algorithms = frozenset(algorithms)
        if not self._algorithms or not self._algorithms <= ALGORITHMS.keys():
            raise InvalidArgumentError(
                "algorithms",
                f"the signatures of tokens are some of {', '.join(ALGORITHMS)}, not {', '.join(algorithms)}",
            )
        if not self._grants:
            raise InvalidArgumentError(
                "grants", "without a grant every token is refused: give one, such as groups:team=read@*"
            )

    async def verified(self, token: str) -> VerifiedCredential | None:
        """Return a token as verified; None if it is not valid. UnavailableError while no key can be read."""
        claims = await self.claims_of(token, self._audience)
        return None if claims is None else self.granted(claims)

    async def claims_of(self, token: str, audience: str) -> Mapping[str, object] | None:
        """Return the claims of a token for an audience; None if it is not valid. Raises as `verified`."""
        header = _header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            return None
        if not _KEYS_OF_TOKENS.isdisjoint(header):
            return None
        if kid is not None and not isinstance(kid, str):
            return None
        fitting = [key for key in await self._keys.keys(kid) if _fits(key, algorithm)]
        if len(fitting) != 1:
            return None
        return self._claims(token, fitting[0], algorithm, audience)

    def _claims(self, token: str, key: Jwk, algorithm: str, audience: str) -> Mapping[str, object] | None:
        import jwt

        try:
            public = jwt.PyJWK(key, algorithm=algorithm).key
            if algorithm[:2] in ("RS", "PS") and public.key_size < RSA_BITS_MIN:
                return None
            return cast(
                "dict[str, object]",
                jwt.decode(
                    token,
                    public,
                    algorithms=[algorithm],
                    audience=audience,
                    issuer=self.issuer,
                    leeway=LEEWAY,
                    options={"require": ["exp", "iss", "aud", "sub"]},
                ),
            )
        except (jwt.PyJWTError, *_MALFORMED):
            return None

    def granted(self, claims: Mapping[str, object]) -> VerifiedCredential | None:
        """Return what verified claims allow; None if no grant fits them, or they do not name the principal."""
        subject = claims.get(self._subject)
        expires = int(cast("int", claims["exp"]))  # PyJWT has checked that it is a number
        for grant in self._grants:
            if isinstance(subject, str) and subject and grant.value in _values(claims.get(grant.claim)):
                principal = Principal(
                    id=subject, kind="user", scopes=grant.scopes, namespaces=grant.namespaces
                )
                return VerifiedCredential(principal=principal, expires_at=expires * 1_000_000)
        return None


_MALFORMED: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What the decoders raise for data that is not what it should be."""


def _header(token: str) -> dict[str, Any]:
    """Return the header of a token, unverified; empty if the token has no header."""
    import jwt

    try:
        return jwt.get_unverified_header(token)
    except (jwt.PyJWTError, *_MALFORMED):
        return {}


def _fits(key: Jwk, algorithm: str) -> bool:
    """Return whether a public key may have made a signature of this kind."""
    return (
        key.get("kty") == ALGORITHMS[algorithm]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (algorithm != "ES256" or key.get("crv") == "P-256")
        and (algorithm != "EdDSA" or key.get("crv") in ("Ed25519", "Ed448"))
    )


def _values(claim: object) -> Sequence[object]:
    """Return the values of a claim: those of a list, or the words of a text and the text as a whole."""
    if isinstance(claim, str):
        return (claim, *claim.split())
    return cast("list[object]", claim) if isinstance(claim, list) else ()


def _check_installed() -> None:
    if find_spec("jwt") is None:
        raise ModuleNotFoundError('tokens need PyJWT: pip install "holdfast[oidc]"', name="jwt")
