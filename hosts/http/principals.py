"""Who sends a request, and what a principal may do.

A scope is a right on a namespace. Every operation of the server needs exactly one. A principal comes from an API key,
a JSON Web Token, a browser session, or a function of the application that embeds the server.
"""

from attrs import field, frozen

from holdfast.hosts.http.authentication.csrf import csrf_token, is_csrf_token
from holdfast.ports.actors import Actor
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.scopes import ALL_NAMESPACES, Scope

__all__ = ["ALL_NAMESPACES", "Principal", "Scope"]


@frozen(kw_only=True)
class CurrentSession:
    """The browser session of a request."""

    id: str
    """The id of its row, which is no secret."""
    secret: str = field(repr=False)
    """The secret in the cookie."""
    row: BrowserSession = field(repr=False)
    """Its row."""

    def csrf_token(self) -> str:
        """Return a token for forms and requests of the session. It looks different each time."""
        return csrf_token(self.secret)

    def has_csrf_token(self, text: str) -> bool:
        """Return whether a text is a token of this session."""
        return is_csrf_token(text, self.secret)


@frozen(kw_only=True)
class Principal:
    """Who sends a request."""

    id: str
    """What audit entries and history events name: the label of a key, or the subject of a token."""

    scopes: frozenset[Scope]
    """What the principal may do, in each of its namespaces."""

    namespaces: frozenset[str]
    """The namespaces, or `*` for all."""

    kind: str = "user"
    """The kind of the actor in history events: `user`, `key`, `service`, ..."""

    session: CurrentSession | None = field(default=None, eq=False, repr=False)
    """The browser session whose cookie has authenticated the request; None: something else has."""

    def reaches(self, namespace: str) -> bool:
        """Return whether the principal may know that this namespace exists."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces

    def may(self, scope: Scope, namespace: str) -> bool:
        """Return whether the principal has a scope on a namespace."""
        return scope in self.scopes and self.reaches(namespace)

    @property
    def actor(self) -> Actor:
        """The actor of the commands that the principal sends."""
        return Actor(kind=self.kind, id=self.id)
