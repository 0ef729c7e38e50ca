"""Operations are found by the segments of a path."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from starlette.routing import Match
from starlette.types import Scope

from holdfast.hosts.http.operations import Operation
from holdfast.hosts.http.pages.table import PAGE_OPERATIONS
from holdfast.hosts.http.routes import OperationRoutes, routes_of
from holdfast.hosts.http.table import OPERATIONS

TABLE = (*OPERATIONS, *PAGE_OPERATIONS)


async def _answer(*_: object) -> None:
    raise NotImplementedError


def _routes(*paths: str) -> OperationRoutes:
    by_path: Mapping[str, Mapping[str, Operation[Any, Any, Any]]] = {path: {} for path in paths}
    return OperationRoutes(by_path, _answer)


def _scope(path: str, **more: object) -> Scope:
    return {"type": "http", "path": path, **more}


def _found(routes: OperationRoutes, path: str) -> tuple[str, dict[str, str]] | None:
    match, scope = routes.matches(_scope(path))
    return None if match is Match.NONE else (scope["route"].path, scope["path_params"])


@pytest.mark.parametrize("path", sorted({one.path for one in TABLE}))
def test_every_path_of_the_table_is_found_with_its_parameters(path: str) -> None:
    [routes] = routes_of(TABLE, _answer)
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    sent = path
    for name in names:
        sent = sent.replace(f"{{{name}}}", f"a {name}")

    match, scope = routes.matches(_scope(sent, raw_path=quote(sent).encode()))

    assert match is Match.FULL
    assert scope["route"].path == path
    assert scope["path_params"] == {name: f"a {name}" for name in names}


def test_a_text_of_the_table_is_no_parameter_unless_only_that_fits() -> None:
    routes = _routes("/runs/{run}", "/runs/counts", "/runs/counts/x/y", "/runs/{run}/x/{place}")

    assert _found(routes, "/runs/counts") == ("/runs/counts", {})
    assert _found(routes, "/runs/count") == ("/runs/{run}", {"run": "count"})
    assert _found(routes, "/runs/counts/x/y") == ("/runs/counts/x/y", {})
    assert _found(routes, "/runs/counts/x/z") == ("/runs/{run}/x/{place}", {"run": "counts", "place": "z"})


@pytest.mark.parametrize(
    "path", ["/", "/runs", "/runs/", "/runs/a/", "/runs/a/x", "//runs/a", "/Runs/a", "runs/a", "/runs/\x00"]
)
def test_other_paths_are_not_found(path: str) -> None:
    assert _found(_routes("/runs/{run}"), path) is None
