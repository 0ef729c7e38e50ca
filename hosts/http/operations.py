"""What an operation of the server is: one entry describes its route, its rights, its types and what it does.

Routes, the OpenAPI document, the reference page and the tests of rights are made from these entries. A handler reads
through the engine or dispatches a command, and decides nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, cast

import attrs
from typing_extensions import TypeVar

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.http.authentication.verified_credentials import VerifiedCredential
from holdfast.hosts.http.principals import Principal, Scope
from holdfast.hosts.http.server_parts import ServerParts
from holdfast.ports.errors import HoldfastError

if TYPE_CHECKING:  # the client has the table of operations too, and needs no starlette
    from starlette.requests import Request

Q = TypeVar("Q", default=Any)
B = TypeVar("B", default=Any)
R = TypeVar("R", default=Any)
Item = TypeVar("Item")

NAMESPACE: Final = "/v1/namespaces/{namespace}"
"""The path below which everything of a namespace is."""
RUN: Final = f"{NAMESPACE}/runs/{{run_id}}"
"""The path of a run."""

WAIT_SECONDS_MAX: Final = 55
"""The longest wait of one request, below the usual timeouts of proxies."""


class Access(Enum):
    """Who may call an operation that needs no scope."""

    ANYONE = "anyone"
    """Anyone, without credentials. For operations that show nothing of any namespace."""

    PRINCIPAL = "any principal"
    """Every principal. The handler decides what it shows to this one."""

    CREDENTIAL = "who has a credential in the body"
    """The holder of a key or token that is sent as `credential` in the body; headers do not count."""

    CODE = "a person with a code of the OpenID Connect provider"
    """The person of the code that the provider has put into the query; headers do not count."""


class Reach(Enum):
    """The namespaces in which a principal needs the scope of an operation."""

    NAMED = "the namespace in the path"
    ALL = "all namespaces"
    """For what is not limited to one."""
    ANY = "any namespace"
    """The handler shows what is in the namespaces that the principal reaches."""


class Hint(StrEnum):
    """What an operation does to the store, for clients that ask people before they change something."""

    READS = "reads"
    CHANGES = "changes"
    DESTROYS = "destroys"


class Wait(Enum):
    """What an answer can wait for, with `Prefer: wait=N`."""

    CHANGE = "the document differs from the `If-None-Match` of the request"
    ROWS = "there is at least one item"
    END = "the run has ended"
    REPLY = "the update has been carried out"
    TASKS = "there is at least one task"


@attrs.frozen
class Text:
    """An answer that is not JSON."""

    content: bytes
    """What is sent."""
    media_type: str
    """Its `Content-Type`."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers."""


@attrs.frozen
class Redirect:
    """An answer that leads a browser to another address."""

    address: str
    """The path with its query, below the mount; the whole address of another server."""
    is_elsewhere: bool = False
    """Whether it is an address of another server."""


@attrs.frozen
class Nothing:
    """No query parameters, or no fields in the body."""


@attrs.frozen(kw_only=True)
class Invocation(Generic[Q, B]):
    """A request that was authenticated, authorised and read."""

    engine: SyncEngine
    """The engine in the namespace of the path. It acts as the principal."""
    principal: Principal
    """Who sends the request."""
    server: ServerParts
    """The server."""
    path: Mapping[str, str]
    """The parameters in the path."""
    query: Q
    """The query parameters."""
    body: B
    """The body."""
    idempotency_key: str | None = None
    """The header `Idempotency-Key`: the idempotency key of the command."""
    generation: int | None = None
    """The header `If-Match`: the generation that is meant."""
    accept: str = ""
    """The header `Accept`, for an answer that has several forms."""
    root: str = ""
    """The path under which the server is mounted, for links."""
    request: "Request" = attrs.field(repr=False)
    """The request as it was sent. For cookies; everything else has been read."""
    verified: VerifiedCredential | None = attrs.field(default=None, repr=False)
    """The credential in the body, for `Access.CREDENTIAL`; the ID token, for `Access.CODE`."""
    is_form: bool = False
    """Whether a form of a page was sent, which is answered with a redirect."""
    return_to: str | None = None
    """The path, below the mount, to which a browser goes after a form; None: where the operation leads."""
    answer_cookies: list[str] = attrs.field(factory=list[str], repr=False)
    """Values of `Set-Cookie` that the handler adds to the answer."""

    @property
    def namespace(self) -> str:
        """The namespace of the path."""
        return self.engine.core.namespace

    @property
    def run(self) -> SyncRunHandle[object]:
        """The handle of the run in the path."""
        return SyncRunHandle(self.engine.client, self.path["run_id"], object)

    def sees_values(self) -> bool:
        """Return whether the principal may see what user code wrote."""
        return self.principal.may(Scope.PAYLOADS, self.namespace)


class ServerEvent(Protocol):
    """An event of a stream."""

    @property
    def id(self) -> str | None:
        """The value for `Last-Event-ID` to continue after it."""
        ...

    @property
    def type(self) -> str:
        """The type of the event."""
        ...

    @property
    def data(self) -> object:
        """The document."""
        ...


class EventReader(Protocol):
    """Reads the events of one stream, in order. Its methods block."""

    @property
    def is_over(self) -> bool:
        """Whether everything has been read, and nothing can follow for now."""
        ...

    def read(self) -> list[ServerEvent]:
        """Return the next events; none if there is nothing new."""
        ...


class RowReader(EventReader, Protocol):
    """Reads events that follow from the history rows of a run."""

    @property
    def place(self) -> tuple[str, int]:
        """The key of the run, and the number of the history row, after which there is more to read."""
        ...


Handler: TypeAlias = Callable[[Invocation[Q, B]], R]
"""Carries out an operation."""


@attrs.frozen(kw_only=True)
class Operation(Generic[Q, B, R]):
    """An operation of the server. Its summary and description are the docstring of its handler."""

    name: str
    """Its name, a noun and a verb: the `operationId`, and the label in metrics."""
    method: str
    """The method of HTTP."""
    path: str
    """The path, with parameters in braces."""
    scope: Scope | Access
    """What it needs. There is no default: an entry without one can't be built."""
    handler: Handler[Q, B, R]
    """What it does."""
    reply: type[R]
    """The class of its answer. None: it has no body. Text: it is not JSON."""
    query: type[Q] = attrs.field(default=cast("Any", Nothing))
    """The class of its query parameters. Others are refused."""
    body: type[B] = attrs.field(default=cast("Any", Nothing))
    """The class of the body of the request."""
    reach: Reach = Reach.NAMED
    """Where the principal needs the scope."""
    hint: Hint = Hint.READS
    """What it does to the store."""
    errors: tuple[type[HoldfastError], ...] = ()
    """The errors that it raises, beside those of every operation."""
    location: Callable[[Invocation[Q, B], R], str | None] | None = None
    """Returns the path of what the request created, below the mount; None if it existed. The answer is then a 201."""
    wait: Wait | None = None
    """What an answer can wait for; None: it is always answered at once."""
    reread: Callable[[Invocation[Q, B], R], R] | None = None
    """Returns a newer answer while the request waits; by default the handler is called again."""
    stream: Callable[[Invocation[Q, B], str | None], EventReader] | None = None
    """Returns a reader of its events, given the `Last-Event-ID`. None: an answer that can wait for a change is watched,
    others can't be streamed."""
    events: Mapping[str, type] = attrs.field(factory=dict[str, type])
    """The classes of the data of the events of a stream of its own, by their types; of "", of all others."""
    is_due: Callable[[Invocation[Q, B]], bool] | None = None
    """Returns whether its stream, or its answer after a wait, may have something new. It is cheap, and called once a
    second for all who wait for the same path. None: a `RowReader` says for which history row to wait."""
    stream_state: Callable[[Invocation[Q, B]], object] | None = None
    """Returns JSON data that differ whenever its stream has something new. Called once a second for all who follow the
    same path. None: `is_due` or a history row says so."""
    changes_without_rows: bool = False
    """Whether the document of a run changes though its history does not grow: it is read once a second then too."""
    reconnect: int = 1_000
    """After how many milliseconds a client whose stream has ended connects again."""
    blocks: bool = True
    """Whether its handler may block, and so runs in a thread."""
    if_match: bool = False
    """Whether it obeys `If-Match`."""
    idempotent: bool = False
    """Whether it obeys `Idempotency-Key`."""
    media_types: tuple[str, ...] = ("application/json",)
    """The forms of its answer."""
    form: Callable[[Invocation[Q, B]], str] | None = None
    """Returns the path, below the mount, to which a browser goes after a form; None: the form has the path."""
    in_read_only: bool = False
    """Whether a server that only reads carries it out all the same, as it changes only who is signed in."""
    ignores_unknown: bool = False
    """Whether it ignores query parameters that it does not know: another server has chosen them."""
    is_page: bool = False
    """Whether people open it in a browser: links of other sites may lead to it, and its GET changes nothing."""
    body_max: int = 0
    """The largest body in bytes, if it may be larger than other bodies."""
    is_probe: bool = False
    """Whether it is requested every few seconds by monitoring, and therefore logged with DEBUG only."""

    @property
    def takes_form(self) -> bool:
        """Whether a page can send it as a form: it changes something, and is not for workers."""
        is_action = (
            self.hint is not Hint.READS and isinstance(self.scope, Scope) and self.scope is not Scope.WORK
        )
        return self.form is not None or (is_action and self.method != "GET")

    @property
    def can_wait(self) -> bool:
        """Whether it can be answered after a wait."""
        return self.wait is not None

    @property
    def can_stream(self) -> bool:
        """Whether it can be answered as a stream of events."""
        return self.stream is not None or self.is_watched

    @property
    def is_watched(self) -> bool:
        """Whether its stream has the whole document, whenever that has changed. Such a stream has no end."""
        return self.wait is Wait.CHANGE and self.stream is None

    def _fault(self) -> str | None:
        """Return why the entry contradicts itself; None if it does not."""
        if not self.path.startswith("/"):
            return "the path begins with a slash"
        if self.path.startswith(NAMESPACE) and self.scope is Access.ANYONE:
            return "an operation of a namespace can't be open to anyone"
        if self.reach is Reach.NAMED and isinstance(self.scope, Scope) and "{namespace}" not in self.path:
            return "its path names no namespace, so say in which ones its scope is needed"
        if self.scope is Access.CREDENTIAL and not any(
            one.name == "credential" for one in attrs.fields(cast("Any", self.body))
        ):
            return "its body has no credential"
        if self.is_page and (self.method != "GET" or self.hint is not Hint.READS):
            return "a page is a GET that reads"
        if self.can_stream and self.method != "GET":
            return "only a GET can be streamed"
        return None

    def __attrs_post_init__(self) -> None:
        """Refuse an entry that contradicts itself."""
        if fault := self._fault():
            raise ValueError(f"{self.name}: {fault}")


Table: TypeAlias = tuple[Operation[Any, Any, Any], ...]
"""Operations of one subject, or all of them."""


@attrs.frozen(kw_only=True, slots=False)  # others inherit from it and from one class more
class PageQuery:
    """The query parameters of every list."""

    after: str | None = None
    """The `next` of the page before."""
    limit: int = attrs.field(default=50, validator=[attrs.validators.ge(1), attrs.validators.le(1_000)])
    """The maximum number of items, at most 1,000."""


def page_of(found: Iterable[Item], limit: int) -> tuple[tuple[Item, ...], Item | None]:
    """Return at most `limit` elements, and the last of them if there are more."""
    read = tuple(islice(found, limit + 1))
    items = read[:limit]
    return items, items[-1] if len(read) > limit else None


@attrs.frozen(kw_only=True)
class GenerationQuery:
    """The query parameters of a read of one generation."""

    generation: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(1))
    )
    """The number of a generation, from 1; the newest one if omitted."""


@attrs.frozen(kw_only=True, slots=False)  # as above
class Reason:
    """A body with a reason."""

    reason: str = ""
    """Why, for people."""
