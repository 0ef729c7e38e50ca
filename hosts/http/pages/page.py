"""The request for a page with the rights of its sender, and the answer."""

from datetime import datetime
from typing import Any, Generic, cast

import attrs
from typing_extensions import TypeVar

from holdfast.hosts.http.operations import Access, Hint, Invocation, Nothing, Reach
from holdfast.hosts.http.pages.html import Html
from holdfast.hosts.http.pages.links import Links, operation_named
from holdfast.hosts.http.principals import ALL_NAMESPACES
from holdfast.hosts.http.routes import address_of
from holdfast.hosts.http.user_values import without_user_values
from holdfast.hosts.wiring.services import Core

Q = TypeVar("Q", default=Any)
V = TypeVar("V")
W = TypeVar("W")


@attrs.frozen
class Page(Generic[Q]):
    """A request for a page."""

    call: Invocation[Q, Any]
    """The request, with the engine in the namespace of the page."""

    @property
    def query(self) -> Q:
        """The query parameters."""
        return self.call.query

    @property
    def core(self) -> Core:
        """The core of the engine, for reads."""
        return self.call.engine.core

    @property
    def now(self) -> datetime:
        """The time of the store."""
        return self.core.clock.now()

    @property
    def links(self) -> Links:
        """Makes the addresses on the page."""
        return Links(self.call.root, self.call.path.get("namespace", self.call.namespace))

    @property
    def sees_values(self) -> bool:
        """Whether the person may see what user code wrote."""
        return self.call.sees_values()

    def reading(self, query: W) -> Invocation[W, Nothing]:
        """Return the request of a read of the API with these query parameters, for its handler."""
        call: Any = self.call
        return cast("Invocation[W, Nothing]", attrs.evolve(call, query=query))

    def sending(self, body: W) -> Invocation[Nothing, W]:
        """Return the request of an operation of the API with this body, for its handler."""
        call: Any = self.call
        return cast("Invocation[Nothing, W]", attrs.evolve(call, query=Nothing(), body=body))

    def shown(self, document: V) -> V:
        """Return a document as the person may see it: without values of users if the scope `payloads` is missing."""
        return document if self.sees_values else without_user_values(document)

    def may(self, operation: str) -> bool:
        """Return whether the person may carry out an operation, in the namespace of the page."""
        wanted, principal = operation_named(operation), self.call.principal
        if self.call.server.read_only and wanted.hint is not Hint.READS and not wanted.in_read_only:
            return False
        if isinstance(wanted.scope, Access):
            return True
        if wanted.reach is Reach.NAMED:
            return principal.may(wanted.scope, self.links.namespace)
        return wanted.scope in principal.scopes and (
            wanted.reach is Reach.ANY or ALL_NAMESPACES in principal.namespaces
        )

    @property
    def csrf_token(self) -> str | None:
        """The token that forms of the page send; None if no cookie has authenticated the request."""
        session = self.call.principal.session
        return None if session is None else session.csrf_token()

    @property
    def address(self) -> str:
        """The path and the query of the page, below the mount: a form leads back to it."""
        return address_of(self.call.request.scope)


@attrs.frozen(kw_only=True)
class Answer:
    """What a page shows."""

    title: str
    """Its title, such as the id of a run."""
    content: Html
    """Its main part."""
    section: str = ""
    """The entry of the navigation that it belongs to, such as `runs`."""
    watch: str | None = None
    """The path of an operation that can be streamed, with its query and below the mount. Whenever its answer changes,
    the page is read again, and its live regions are replaced."""
