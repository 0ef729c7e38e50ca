"""Routes of the operations, for Starlette.

Paths are compared segment by segment as they were sent, and each segment is decoded by itself. So an id with a slash,
written `%2F`, is one segment, and a path has one spelling that matches.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias
from urllib.parse import quote, unquote

import attrs
from starlette.requests import Request
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from holdfast.hosts.http.json_input import is_fit
from holdfast.hosts.http.operations import Operation, Table

Endpoint: TypeAlias = Callable[[Request, Mapping[str, "Operation[Any, Any, Any]"], Send], Awaitable[None]]
"""Answers a request to a path that has operations, by their method."""


@attrs.frozen
class OperationPath:
    """A path of the table."""

    path: str
    segments: tuple[str, ...]
    operations: Mapping[str, Operation]
    """Its operations by method."""


class OperationRoutes(BaseRoute):
    """The paths of a table as one route, so that a request is not compared with each of them."""

    def __init__(self, paths: Mapping[str, Mapping[str, Operation]], endpoint: Endpoint) -> None:
        self._tree = _Branch()
        for path, operations in paths.items():
            segments = tuple(path.split("/")[1:])
            self._tree.add(OperationPath(path, segments, operations))
        self._endpoint = endpoint

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        segments = path_segments(scope)
        found = self._tree.find(segments)
        if found is None:
            return Match.NONE, {}
        parameters = {
            name[1:-1]: segment
            for name, segment in zip(found.segments, segments, strict=True)
            if name.startswith("{")
        }
        return Match.FULL, {"path_params": parameters, "route": found}

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        found: OperationPath = scope["route"]
        await self._endpoint(Request(scope, receive), found.operations, send)

    @override
    def url_path_for(self, name: str, /, **path_params: Any) -> NoReturn:
        raise NoMatchFound(name, path_params)


class _Branch:
    """The paths that begin with the same segments."""

    def __init__(self) -> None:
        self._by_text: dict[str, _Branch] = {}
        self._of_parameter: _Branch | None = None
        self._path: OperationPath | None = None

    def add(self, path: OperationPath, depth: int = 0) -> None:
        """Add a path, below the branch of its segments up to a depth."""
        if depth == len(path.segments):
            self._path = path
            return
        segment = path.segments[depth]
        if not segment.startswith("{"):
            below = self._by_text.setdefault(segment, _Branch())
        else:
            below = self._of_parameter = self._of_parameter or _Branch()
        below.add(path, depth + 1)

    def find(self, segments: Sequence[str], depth: int = 0) -> OperationPath | None:
        """Return the path of a request. A segment that is a text of the table is no parameter there."""
        if depth == len(segments):
            return self._path
        segment = segments[depth]
        below = self._by_text.get(segment)
        found = None if below is None else below.find(segments, depth + 1)
        if found is None and self._of_parameter is not None and segment and is_fit(segment):
            found = self._of_parameter.find(segments, depth + 1)
        return found


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
    return [OperationRoutes(by_path, endpoint)]
