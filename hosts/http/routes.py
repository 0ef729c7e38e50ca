"""Routes of the operations, for Starlette.

Paths are compared segment by segment as they were sent, and each segment is decoded by itself. So an id with a slash,
written `%2F`, is one segment, and a path has one spelling that matches.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeAlias
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from holdfast.hosts.http.json_input import is_fit
from holdfast.hosts.http.operations import Operation, Table

Endpoint: TypeAlias = Callable[[Request, Mapping[str, "Operation[Any, Any, Any]"], Send], Awaitable[None]]
"""Answers a request to a path that has operations, by their method."""


class PathRoute(BaseRoute):
    """The operations of one path, by method."""

    def __init__(self, path: str, operations: Mapping[str, Operation], endpoint: Endpoint) -> None:
        self.path = path
        self.operations = operations
        self._segments = path.split("/")[1:]
        self._endpoint = endpoint

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        segments = path_segments(scope)
        if len(segments) != len(self._segments):
            return Match.NONE, {}
        found: dict[str, str] = {}
        for wanted, segment in zip(self._segments, segments, strict=True):
            if wanted.startswith("{"):
                if not segment or not is_fit(segment):
                    return Match.NONE, {}
                found[wanted[1:-1]] = segment
            elif wanted != segment:
                return Match.NONE, {}
        return Match.FULL, {"path_params": found}

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoint(Request(scope, receive), self.operations, send)

    @override
    def url_path_for(self, name: str, /, **path_params: Any) -> NoReturn:
        raise NoMatchFound(name, path_params)


def path_segments(scope: Scope) -> list[str]:
    """Return the decoded segments of the path below the mount; none of a path that does not begin with a slash."""
    path = _below_mount(scope["path"], scope.get("root_path", ""))
    start, *segments = path.split("/")  # of a server without raw paths, or one that has changed the path
    raw: bytes | None = scope.get("raw_path")
    if raw is not None:
        text = raw.partition(b"?")[0].decode("latin-1")
        if unquote(text) == scope["path"]:
            mount = scope["path"].removesuffix(path)
            start, *sent = text.split("/")
            segments = [unquote(one) for one in sent[mount.count("/") :]]
    return [] if start else segments


def address_of(scope: Scope) -> str:
    """Return the path below the mount with its query, encoded as in a link."""
    path = "".join(f"/{quote(one, safe='')}" for one in path_segments(scope))
    query = scope.get("query_string", b"").decode("latin-1")
    return f"{path}?{query}" if query else path


def _below_mount(path: str, root: str) -> str:
    """Return the path below the mount, whether or not the server that mounts the application has removed that."""
    return path[len(root) :] if root and f"{path}/".startswith(f"{root}/") else path


def routes_of(table: Table, endpoint: Endpoint) -> list[BaseRoute]:
    """Return the routes of operations. ValueError if two have the same method and path, or the same name."""
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    names: set[str] = set()
    for one in table:
        if one.method in by_path[one.path] or one.name in names:
            raise ValueError(f"{one.name}: another operation has this name, or {one.method} {one.path}")
        names.add(one.name)
        by_path[one.path][one.method] = one
    return [PathRoute(path, operations, endpoint) for path, operations in by_path.items()]
