"""An OpenID Connect issuer, which describes itself in a document (OpenID Connect Discovery 1.0, RFC 8414)."""

from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Final, TypeAlias

import attrs

from holdfast.hosts.http.authentication.documents import checked_url, fetch_document, is_safe_url, object_in

Fetch: TypeAlias = Callable[[str], bytes]
"""Returns the bytes at a URL. OSError if they can't be read."""

FETCH_ERRORS: Final = (OSError, ValueError, HTTPException, RecursionError)
"""What fetching and reading a document raises."""


@attrs.frozen
class Issuer:
    """An issuer. InvalidUrlError if its URL is neither https nor on this machine."""

    url: str = attrs.field(converter=checked_url)
    """Its URL, which is also its name in tokens."""
    fetch: Fetch = attrs.field(default=fetch_document, eq=False, repr=False)

    def configuration(self) -> Mapping[str, object]:
        """Fetch and return its configuration. One of `FETCH_ERRORS` if it can't be read, or is of another issuer."""
        document = object_in(self.fetch(f"{self.url.rstrip('/')}/.well-known/openid-configuration"))
        if document.get("issuer") != self.url:
            raise ValueError(f"its configuration names another issuer, {document.get('issuer')!r:.200}")
        return document


def url_in(configuration: Mapping[str, object], name: str) -> str:
    """Return a URL of a configuration, such as `jwks_uri`. ValueError if it is missing, or not https."""
    url = configuration.get(name)
    if not isinstance(url, str) or not is_safe_url(url):
        raise ValueError(f"its {name} is not an https URL: {url!r:.200}")
    return url
