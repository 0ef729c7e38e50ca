"""A client of the server in this process, which checks every response against the OpenAPI document."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import httpx
from starlette.requests import Request

from holdfast import Engine
from holdfast.http import ALL_NAMESPACES, HttpServer, Principal, Scope, asgi_app
from holdfast.metrics import Metrics
from tests.integration.http.responses import check_response

NAMESPACE: Final = "shop"
PRINCIPALS: Final[Mapping[str, Principal]] = {
    "all": Principal(id="ann", scopes=frozenset(Scope), namespaces=frozenset({ALL_NAMESPACES})),
    "foreign": Principal(id="eve", scopes=frozenset(Scope), namespaces=frozenset({"elsewhere"})),
    **{
        scope.value: Principal(id=scope.value, scopes=frozenset({scope}), namespaces=frozenset({NAMESPACE}))
        for scope in Scope
    },
}
"""Principals by their tokens: one for each single scope."""


async def authenticate(request: Request) -> Principal | None:
    """Return the principal of a test by its token."""
    return PRINCIPALS.get(request.headers.get("authorization", "").removeprefix("Bearer "))


class Api:
    """Sends requests to the server of an engine, as a principal."""

    def __init__(
        self,
        engine: Engine,
        *,
        mount: str = "",
        app: Any = None,
        metrics: Metrics | None = None,
        rate_limit: float | None = None,
    ) -> None:
        self.engine = engine
        self.server: HttpServer = asgi_app(
            engine, authenticate=authenticate, metrics=metrics, rate_limit=rate_limit
        )
        transport = httpx.ASGITransport(app=app or self.server, client=("127.0.0.1", 1))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        self._mount = mount

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        by: str | None = "all",
        headers: Mapping[str, str] | None = None,
        content: bytes | AsyncIterator[bytes] | None = None,
    ) -> httpx.Response:
        """Send a request to a path below `/v1/namespaces/shop`, or to one that begins with a slash."""
        found = dict(headers or {})
        if by is not None:
            found["Authorization"] = f"Bearer {by}"
        url = path if path.startswith("/") else f"/v1/namespaces/{NAMESPACE}/{path}"
        kinds: dict[str, Any] = {"content": content} if content is not None else {}
        if content is None and body is not None:
            kinds = {"json": body}
        response = await self._client.request(method, f"{self._mount}{url}", headers=found, **kinds)
        check_response(response, self._mount)
        return response

    async def get(self, path: str, **options: Any) -> Any:
        """Return the document of a GET, which must be answered with 200."""
        response = await self.send("GET", path, **options)
        assert response.status_code == 200, response.text
        return response.json()

    async def post(self, path: str, body: object = None, **options: Any) -> Any:
        """Return the document of a POST, which must be answered with 200 or 201."""
        response = await self.send("POST", path, body, **options)
        assert response.status_code in {200, 201}, response.text
        return response.json()
