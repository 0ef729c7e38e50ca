"""The server as an ASGI application: authenticates a request, reads it, carries out its operation, and answers.

Nothing here decides anything about runs. The application needs no lifespan: it connects at the first request, and can
be mounted under any path of another application.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast
from urllib.parse import urlencode

import anyio
import attrs
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.http.answers import (
    WithCommonHeaders,
    problem_answer,
    request_id_of,
)
from holdfast.hosts.http.authentication.authenticator import Authenticator
from holdfast.hosts.http.authentication.browser_sessions import BrowserSessionSettings
from holdfast.hosts.http.authentication.loopback import LoopbackAccess
from holdfast.hosts.http.authentication.origins import check_same_origin
from holdfast.hosts.http.authentication.single_sign_on import ProviderAnswer, SingleSignOn
from holdfast.hosts.http.authentication.tokens import Tokens
from holdfast.hosts.http.authentication.verified_credentials import VerifiedCredential
from holdfast.hosts.http.download_responses import DownloadResponse, Downloads
from holdfast.hosts.http.json_input import (
    query_object,
    refuse_blob_references,
    structured,
)
from holdfast.hosts.http.live_reads import (
    EventStream,
    OpenReads,
    RowSource,
    Source,
    abandoned,
    checked_again,
    disconnected,
    frames,
    read_again,
    until_claimed,
    until_settled,
    while_connected,
)
from holdfast.hosts.http.operations import (
    WAIT_SECONDS_MAX,
    Access,
    EventReader,
    Hint,
    Invocation,
    Nothing,
    Operation,
    RowReader,
    ServerEvent,
    Table,
    Wait,
)
from holdfast.hosts.http.pages.problem_page import problem_page
from holdfast.hosts.http.pages.shell import HTML_HEADERS
from holdfast.hosts.http.pages.table import FORM_ANSWERS, PAGE_OPERATIONS
from holdfast.hosts.http.principals import Principal, Scope
from holdfast.hosts.http.problems import HttpError, Problem, bug, problem_of
from holdfast.hosts.http.reply_documents import answers_wait, document_response, respond, root_of, shown
from holdfast.hosts.http.request_bodies import BODY_MAX, body_of, check_framing, conditions_of, discard_body
from holdfast.hosts.http.request_forms import (
    METHOD_PARAMETER,
    PAGES,
    RETURN_FIELD,
    form_body,
    is_form,
    method_of,
    sent_form,
)
from holdfast.hosts.http.request_limit import RequestLimit
from holdfast.hosts.http.request_record import RATE_LIMITED, RequestObserver, RequestRecord
from holdfast.hosts.http.request_rights import authorise, check_csrf, check_origin, sees_values
from holdfast.hosts.http.routes import address_of, routes_of
from holdfast.hosts.http.server_parts import server_parts
from holdfast.hosts.http.shared_reads import PolledSource, SharedReads, StateSource, Watcher, id_of
from holdfast.hosts.http.table import OPERATIONS
from holdfast.hosts.inspection.json_form import json_form
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.text import first_of
from holdfast.hosts.wiring.caller_reads import CallerReads
from holdfast.hosts.wiring.hint_listener import HintListener
from holdfast.ports.errors import InvalidArgumentError, ReadTimeoutError
from holdfast.ports.json import compact
from holdfast.ports.read_limits import limited_reads
from holdfast.ports.records.run import TERMINAL, Run

if TYPE_CHECKING:
    from holdfast.hosts.metrics.metrics import Metrics

Authenticate: TypeAlias = Callable[[Request], Awaitable[Principal | None]]
"""Returns who sends a request; None if it has no valid credentials."""

Prepare: TypeAlias = Callable[[], Invocation[Any, Any]]
"""Returns the request as an invocation. May block: the engine connects at its first use."""

READ_TIMEOUT: Final = 2.0
"""How long a read of the store may take, in seconds."""
READ_TIMEOUT_MAX: Final = 5.0
"""The longest time, in seconds, that may be set for it: after it a store itself stops waiting for an answer."""
T = TypeVar("T")

_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*(\d{1,6})\s*(?:$|[,;])")

_log = logging.getLogger("holdfast.http")


class HttpServer:
    """The application. `asgi_app` returns one."""

    def __init__(
        self,
        engine: SyncEngine,
        *,
        authenticate: Authenticate,
        read_only: bool = False,
        body_max: int = BODY_MAX,
        rate_limit: float | None = None,
        read_timeout: float = READ_TIMEOUT,
        metrics: "Metrics | None" = None,
        operations: Table = (*OPERATIONS, *PAGE_OPERATIONS),
    ) -> None:
        monotonic = engine.core.adapters.clock.monotonic
        self._engine = engine
        self._authenticator = authenticate if isinstance(authenticate, Authenticator) else None
        sessions = None if self._authenticator is None else self._authenticator.sessions
        sign_on = None if self._authenticator is None else self._authenticator.sign_on
        self._parts = server_parts(engine, metrics, sessions, sign_on=sign_on, read_only=read_only)
        self._limit = None if rate_limit is None else RequestLimit(rate_limit, monotonic)
        self._observer = RequestObserver(metrics, monotonic)
        self._authenticate = authenticate
        self._body_max = body_max
        self._read_timeout = read_timeout
        self._reads = OpenReads()
        self._downloads = Downloads()
        self._shared = SharedReads(engine.core.adapters.clock.monotonic)
        router = Router(
            routes_of(operations, self._answer), redirect_slashes=False, default=self._answer_not_found
        )
        self._app = WithCommonHeaders(router)

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    @property
    def open_reads(self) -> int:
        """How many streams and waits are open."""
        return self._reads.number

    def stop(self) -> None:
        """End open streams and waits, and refuse new ones. From any thread."""
        self._reads.stop()

    async def _answer_not_found(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000, "reason": ""})
            return
        request = Request(scope, receive)
        with self._observer.observed(request) as record:
            try:
                check_framing(request)
                if (page := _page_without_slash(request)) is None:
                    raise HttpError("not_found")
            except HttpError as error:
                await self._send_problem(error, record, record.noting(send))
                return
            answer = Response(status_code=308, headers={"Location": page})
            await respond(answer, request, record.noting(send))

    async def _answer(self, request: Request, operations: Mapping[str, Operation], send: Send) -> None:
        """Answer a request to a path that has operations."""
        reads = CallerReads(self._read_timeout)
        with self._observer.observed(request) as record, limited_reads(reads):
            await self._answer_recorded(record, operations, record.noting(send), reads)

    async def _answer_recorded(
        self, record: RequestRecord, operations: Mapping[str, Operation], send: Send, reads: CallerReads
    ) -> None:
        request = record.request
        response: Response | None
        try:
            check_framing(request)
            record.operation = operation = _operation_of(request, operations)
            if operation.scope is Access.CREDENTIAL:
                check_same_origin(request.headers)
            elif operation.scope not in (Access.ANYONE, Access.CODE):
                record.principal = await self._principal_of(request)
                check_origin(request, record.principal, operation)
                authorise(operation, request, record.principal)
                self._count(record.principal)
            if self._parts.read_only and operation.hint is not Hint.READS and not operation.in_read_only:
                raise HttpError("read_only", "this server only reads: it was started so")
            prepare = await self._read(operation, record)
            if _wants_stream(request):
                response = await self._stream(operation, prepare, request, reads)
            else:
                response = await self._carry_out(operation, prepare, record, reads)
            if isinstance(response, DownloadResponse):
                self._downloads.check(len(response.content))
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  # what is not an error of ours is a bug, and answered as one
            if not reads.is_abandoned:
                await self._send_problem(error, record, send)
            return
        if isinstance(response, EventStream):
            record.has_waited = True
            with self._observer.open_read("streams", operation):
                await respond(response, request, send)
        elif isinstance(response, DownloadResponse):
            with self._downloads.counted(len(response.content)):
                await respond(response, request, send)
        elif response is not None:
            await respond(response, request, send)

    async def _send_problem(self, error: Exception, record: RequestRecord, send: Send) -> None:
        error = cast("Exception", first_of(error))
        request, principal = record.request, record.principal
        root = root_of(request)
        is_shown = principal is not None and sees_values(principal, request)
        problem = problem_of(error, root, sees_values=is_shown)
        if problem is None:
            _log.error("request %s failed", record.id, exc_info=error)
            problem = bug(root, record.id)
        if isinstance(error, ReadTimeoutError) and record.changes:
            problem = attrs.evolve(problem, detail=f"{problem.detail}; {_MAY_BE_STORED}")
        if problem.status in {401, 403} or problem.code == RATE_LIMITED:
            record.refusal = problem.code
        headers = dict(error.headers) if isinstance(error, HttpError) else {}
        await discard_body(request)
        await respond(self._problem_response(problem, record, headers), request, send)

    def _problem_response(self, problem: Problem, record: RequestRecord, headers: dict[str, str]) -> Response:
        """Return a problem as the client can show it: a page for what a person has opened or sent in a browser."""
        request, operation = record.request, record.operation
        root = root_of(request)
        is_page = operation.is_page if operation is not None else _wants_page(request)
        if not is_page and not (is_form(request) and _wants_page(request)):
            return problem_answer(problem, headers)
        if is_page and problem.status == 401 and self._parts.sessions is not None:
            query = urlencode({RETURN_FIELD: address_of(request.scope)})
            return Response(status_code=303, headers={"Location": f"{root}{PAGES}/sign-in?{query}"})
        if problem.retry_after is not None:
            headers["Retry-After"] = str(problem.retry_after)
        content = problem_page(problem, request, root)
        return Response(content, problem.status, {**headers, **dict(HTML_HEADERS)}, "text/html")

    async def _principal_of(self, request: Request) -> Principal:
        principal = await self._authenticate(request)
        if principal is None:
            if "authorization" in request.headers:
                raise HttpError(
                    "unauthenticated", "the key or token is not valid: it is wrong, revoked or expired"
                )
            raise HttpError("unauthenticated", "send a key or token: `Authorization: Bearer ...`")
        return principal

    async def _check_again(self, operation: Operation, request: Request) -> None:
        """Raise what a new request would be refused with, but for the limit on requests."""
        authorise(operation, request, await self._principal_of(request))

    def _count(self, principal: Principal) -> None:
        if self._limit is not None:
            self._limit.check(principal)

    async def _verify(self, request: Request, credential: str) -> VerifiedCredential:
        """Return the credential in a body. HttpError if it is not valid, or an application authenticates requests."""
        if self._authenticator is None:
            raise HttpError("not_found", "the application that embeds this server signs people in")
        verified = await self._authenticator.verify(request, credential.strip())
        if verified is None:
            raise HttpError("unauthenticated", "this is no valid key or token")
        self._count(verified.principal)
        return verified

    async def _signed_in(self, request: Request, answer: ProviderAnswer) -> VerifiedCredential:
        """Return the ID token for a provider's answer. Raises as `Authenticator.signed_in`."""
        if self._authenticator is None:
            raise HttpError("not_found", "the application that embeds this server signs people in")
        return await self._authenticator.signed_in(request, answer)

    async def _read(self, operation: Operation, record: RequestRecord) -> Prepare:
        """Read a request. HttpError if it is malformed, or lacks what a browser session demands."""
        request = record.request
        parameters = request.query_params.multi_items()
        if request.method != operation.method:  # a form has named it in this parameter
            parameters = [pair for pair in parameters if pair[0] != METHOD_PARAMETER]
        if operation.ignores_unknown:
            known = {one.name for one in attrs.fields(operation.query)}
            parameters = [pair for pair in parameters if pair[0] in known]
        query = query_object(parameters, operation.query)
        data, fields = await body_of(operation, request, self._body_max)
        form = None if fields is None else sent_form(operation, fields)
        check_csrf(request, operation, record.principal, None if form is None else form.csrf_token)
        if form is not None and operation.body is Nothing:  # such as a DELETE, whose reason is in its query
            parameters += [(name, text) for name, text in form.fields.items() if text.strip()]
            query, form.fields = query_object(parameters, operation.query), {}
        body: Any = None if form is None else form_body(operation, form.fields)
        if operation.scope is not Scope.WORK:  # a worker hands on what it has got
            refuse_blob_references(data if form is None else json_form(body))
        if form is None:
            body = structured(data, operation.body)
        key, generation = conditions_of(operation, request, form)
        path = cast("dict[str, str]", request.path_params)
        verified = None
        if operation.scope is Access.CREDENTIAL:
            verified = await self._verify(request, body.credential)
            record.principal = verified.principal
        elif operation.scope is Access.CODE:
            verified = await self._signed_in(request, query)
            record.principal = verified.principal
        actor = record.principal or _ANYONE

        def prepare() -> Invocation[Any, Any]:
            return Invocation(
                engine=_engine_for(self._engine, path.get("namespace"), actor, request_id_of(request.scope)),
                principal=actor,
                path=path,
                query=query,
                body=body,
                idempotency_key=key,
                generation=generation,
                server=self._parts,
                accept=request.headers.get("accept", ""),
                root=root_of(request),
                request=request,
                verified=verified,
                is_form=form is not None,
                return_to=None if form is None else form.return_to,
            )

        return prepare

    async def _carry_out(
        self, operation: Operation, prepare: Prepare, record: RequestRecord, reads: CallerReads
    ) -> Response | None:
        """Return the answer; None if the client has left."""
        request = record.request
        known, seconds = request.headers.get("if-none-match"), self._wait_of(operation, request)
        applied = {} if seconds is None else {"Preference-Applied": f"wait={seconds}"}

        def answer() -> tuple[Invocation[Any, Any], Any, Response | None]:
            """Return the answer, or only the reply so far if the request waits for more."""
            invocation = prepare()
            reply = operation.handler(invocation)
            if invocation.is_form and operation.name in FORM_ANSWERS:
                reply = FORM_ANSWERS[operation.name](invocation, reply)
            if seconds is not None and not answers_wait(operation, invocation, known, reply):
                return invocation, reply, None
            return invocation, reply, document_response(operation, invocation, reply, known, applied)

        if not operation.blocks:
            invocation, reply, response = answer()
        elif operation.hint is Hint.READS:
            invocation, reply, response = await while_connected(answer, request.receive, reads)
        else:
            invocation, reply, response = await in_thread(answer)
        if response is not None or seconds is None:
            return response
        settled = partial(answers_wait, operation, invocation, known)
        record.has_waited = True
        with self._observer.open_read("waits", operation):
            waited = await self._wait(operation, invocation, reply, settled, seconds, request, reads)
        if waited is None:
            return None
        return await in_thread(document_response, operation, invocation, waited[0], known, applied)

    def _wait_of(self, operation: Operation, request: Request) -> int | None:
        """Return for how many seconds to wait; None for an answer at once.

        A preference may be ignored, and is if too many requests wait. But a claim is refused then, with 503: a worker
        that got an answer at once would claim again at once.
        """
        found = _WAIT.search(",".join(request.headers.getlist("prefer")))
        if operation.wait is None or found is None:
            return None
        if operation.wait is Wait.TASKS:
            self._reads.check()
        return min(int(found[1]), WAIT_SECONDS_MAX) if self._reads.has_capacity else None

    async def _wait(
        self,
        operation: Operation,
        invocation: Invocation[Any, Any],
        reply: Any,
        is_settled: Callable[[Any], bool],
        seconds: int,
        request: Request,
        reads: CallerReads,
    ) -> tuple[Any] | None:
        """Return the answer in a tuple; None if the client has left."""
        found: list[tuple[Any]] = []
        async with anyio.create_task_group() as group:

            async def leave() -> None:
                await disconnected(request.receive)
                group.cancel_scope.cancel()
                if operation.hint is Hint.READS:
                    with anyio.CancelScope(shield=True):
                        await abandoned(reads)

            group.start_soon(leave)
            group.start_soon(checked_again, partial(self._check_again, operation, request))
            if operation.is_due is not None:
                newest = await self._until_rows(operation, invocation, reply, is_settled, seconds)
            elif operation.wait is Wait.CHANGE and (
                operation.changes_without_rows or "run_id" not in invocation.path
            ):
                newest = await self._until_other(operation, invocation, request, seconds)
            else:
                until = until_claimed if operation.wait is Wait.TASKS else until_settled
                newest = await until(operation, invocation, reply, is_settled, seconds, self._reads)
            found.append((newest,))
            group.cancel_scope.cancel()
        return found[0] if found else None

    async def _until_rows(
        self,
        operation: Operation,
        invocation: Invocation[Any, Any],
        reply: Any,
        is_settled: Callable[[Any], bool],
        seconds: int,
    ) -> object:
        """Return an answer with items; the newest one if none come in time."""
        reread = operation.reread or partial(read_again, operation)
        watcher = Watcher(self._shared)
        try:
            await self._watch(watcher, operation, lambda: invocation, operation.is_due)
            with self._reads.opened() as scope:
                scope.deadline = anyio.current_time() + seconds
                while not is_settled(reply) and await watcher.until_due(WAIT_SECONDS_MAX):
                    reply = await in_thread(reread, invocation, reply)
        finally:
            watcher.close()
        return reply

    async def _until_other(
        self, operation: Operation, invocation: Invocation[Any, Any], request: Request, seconds: float
    ) -> object:
        """Return the document once its ETag is another one; the newest if that does not come in time."""
        known = request.headers.get("if-none-match")
        watcher = Watcher(self._shared, None if known is None else id_of(known))
        try:
            await self._watch(watcher, operation, lambda: invocation)
            return await watcher.until_other(known, seconds, self._reads)
        finally:
            watcher.close()

    async def _stream(
        self, operation: Operation, prepare: Prepare, request: Request, reads: CallerReads
    ) -> Response:
        if not operation.can_stream:
            raise HttpError("not_acceptable", f"{operation.name} has no stream of events")
        self._reads.check()
        last, check = request.headers.get("last-event-id"), partial(self._check_again, operation, request)
        open_stream = operation.stream
        if open_stream is None:
            watcher = Watcher(self._shared, last)
            await self._watch(watcher, operation, prepare)
            return EventStream(watcher, "", self._reads, check, operation.reconnect, reads)

        def begin() -> tuple[EventReader, list[ServerEvent], HintListener]:
            invocation = prepare()
            reader = open_stream(invocation, last)
            return reader, reader.read(), invocation.engine.core.listener

        reader, first, listener = await while_connected(begin, request.receive, reads)
        if not first and reader.is_over:
            # By the standard of server-sent events, the client does not connect again.
            return Response(status_code=204)
        if (depends := operation.is_due or operation.stream_state) is None:
            source: Source = RowSource(cast("RowReader", reader), listener)
        else:
            watcher = Watcher(self._shared)
            await self._watch(watcher, operation, prepare, depends)
            source = (PolledSource if depends is operation.is_due else StateSource)(reader, watcher)
        return EventStream(source, frames(first), self._reads, check, operation.reconnect, reads)

    async def _watch(
        self,
        watcher: Watcher,
        operation: Operation,
        prepare: Prepare,
        depends: Callable[[Invocation[Any, Any]], object] | None = None,
    ) -> None:
        """Let a watcher watch what the events of a stream depend on; without that, the answer of an operation.

        The answer is watched as its principal sees it.
        """

        def begin() -> None:
            invocation = prepare()
            if (state := depends) is not None:
                key = compact([operation.name, dict(invocation.path)])
                self._shared.watch(watcher, key, lambda: self._limited(partial(state, invocation)))
                return
            key = _view_of(operation, invocation)
            is_of_run = "run_id" in invocation.path
            self._shared.watch(
                watcher,
                key,
                lambda: self._limited(lambda: shown(invocation, operation.handler(invocation))),
                partial(self._limited, partial(_when_grown, invocation)) if is_of_run else None,
                is_polled=not is_of_run or operation.changes_without_rows,
            )

        try:
            await in_thread(begin)
        except BaseException:
            watcher.close()
            raise

    def _limited(self, read: Callable[[], T]) -> T:
        """Read for all who watch: with the limit of a read, but not stopped when one of them leaves."""
        with limited_reads(CallerReads(self._read_timeout)):
            return read()


_MAY_BE_STORED: Final = (
    "what this request changes may be stored: repeat it with the same Idempotency-Key, or look first"
)
_ANYONE: Final = Principal(id="", scopes=frozenset(), namespaces=frozenset())
"""Who calls an operation that is open to anyone."""


def asgi_app(
    engine: Engine | SyncEngine,
    *,
    authenticate: Authenticate | None = None,
    tokens: Tokens | None = None,
    single_sign_on: SingleSignOn | None = None,
    allowed_hosts: Collection[str] = (),
    read_only: bool = False,
    body_max: int = BODY_MAX,
    read_timeout: float = READ_TIMEOUT,
    metrics: "Metrics | None" = None,
    browser_sessions: BrowserSessionSettings | None = None,
    rate_limit: float | None = None,
) -> HttpServer:
    """Return the server of an engine as an ASGI application.

    Mount it, `app.mount("/holdfast", asgi_app(engine))`, or run it with any ASGI server. It needs no lifespan, and does
    not close the engine.

    Args:
        engine: The engine. The server reaches all namespaces of its store.
        authenticate: Returns the principal of a request, or None to refuse it with 401. If omitted, requests need an
            API key of the store or a token; while the store has had no key and there are no tokens, only requests from
            this machine are answered, and may do everything.
        tokens: Checks JSON Web Tokens; refused if omitted. Not with `authenticate`.
        single_sign_on: How people sign in to the dashboard with the provider of the tokens. Needs `tokens`.
        allowed_hosts: Further names by which a request from this machine may address it, while no key is needed.
        read_only: Whether everything but reading is refused.
        body_max: The largest body of a request, in bytes.
        read_timeout: How long a read of the store may take, in seconds, above 0 and at most 5. A read that takes longer
            is stopped and answered with 503. Changes are not stopped.
        metrics: What `/metrics` shows, to principals that may read all namespaces; it also counts the requests. By
            default there is none.
        browser_sessions: How long people stay signed in, and how their cookie is sent. Not with `authenticate`.
        rate_limit: How many requests per second are answered for each principal, on average; twice as many may come at
            once. Each process counts for itself. No limit if omitted.

    Raises:
        InvalidArgumentError: Both `authenticate` and `tokens`, or `browser_sessions`, are given; `single_sign_on` is
            given without `tokens`; `rate_limit` is not positive, or the read timeout is out of its range.
    """
    for name, given in (("tokens", tokens), ("browser_sessions", browser_sessions)):
        if authenticate is not None and given is not None:
            raise InvalidArgumentError(
                name, "either `authenticate` decides who sends a request, or the server"
            )
    if single_sign_on is not None and tokens is None:
        raise InvalidArgumentError("single_sign_on", "it needs `tokens`, whose grants say what people may do")
    if not 0 < read_timeout <= READ_TIMEOUT_MAX:
        raise InvalidArgumentError(
            "read_timeout", f"{read_timeout!r}: it is above 0 and at most {READ_TIMEOUT_MAX:g} seconds"
        )
    synchronous = engine.sync if isinstance(engine, Engine) else engine
    if authenticate is None:
        authenticate = Authenticator(
            synchronous.core,
            tokens=tokens,
            single_sign_on=single_sign_on,
            browser_sessions=browser_sessions,
            loopback=LoopbackAccess(allowed_hosts),
        )
    return HttpServer(
        synchronous,
        authenticate=authenticate,
        read_only=read_only,
        body_max=body_max,
        rate_limit=rate_limit,
        read_timeout=read_timeout,
        metrics=metrics,
    )


def _engine_for(
    engine: SyncEngine, namespace: str | None, principal: Principal, request_id: str
) -> SyncEngine:
    there = engine if namespace is None else engine.in_namespace(namespace)
    acting = there.acting_as(principal.actor)
    acting.client = acting.client.in_request(request_id)
    return acting


def _operation_of(request: Request, operations: Mapping[str, Operation]) -> Operation:
    operation = operations.get(method_of(request))
    if operation is None:
        allowed = ", ".join(sorted({*operations, *(("HEAD",) if "GET" in operations else ())}))
        raise HttpError("method_not_allowed", f"the path has {allowed}", headers={"Allow": allowed})
    return operation


def _view_of(operation: Operation, invocation: Invocation[Any, Any]) -> str:
    """Return a text that is the same for all who get the same answer: the read, and what the principal may see."""
    principal = invocation.principal
    rights = [sorted(principal.scopes), sorted(principal.namespaces)]
    return compact([operation.name, dict(invocation.path), json_form(invocation.query), rights])


def _when_grown(invocation: Invocation[Any, Any]) -> "Future[Run] | None":
    """Return a future that ends when the run has more rows; None if it has ended."""
    generation: int | None = getattr(invocation.query, "generation", None)
    run = find_run(invocation.engine.core, invocation.path["run_id"], generation)
    if run.status in TERMINAL:
        return None
    return invocation.engine.core.listener.when_past(run.key, run.last_row)


def _page_without_slash(request: Request) -> str | None:
    """Return the address of a page that was requested with a slash at its end; None for any other request."""
    path, mark, query = address_of(request.scope).partition("?")
    if request.method not in {"GET", "HEAD"} or not path.startswith(f"{PAGES}/") or not path.endswith("/"):
        return None
    return f"{root_of(request)}{path.rstrip('/')}{mark}{query}"


def _wants_page(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "").lower()


def _wants_stream(request: Request) -> bool:
    return "text/event-stream" in request.headers.get("accept", "").lower()
