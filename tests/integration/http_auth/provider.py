"""An OpenID Connect provider on this machine, which checks what a client of the code flow has to send."""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import attrs
import jwt
from typing_extensions import override

from tests.unit.hosts.http.test_tokens import rsa_jwk, rsa_key

CLIENT: Final = "holdfast"
SECRET: Final = "s3cret:+ %"


@attrs.define
class Provider:
    """What the provider knows, and what a test wants of it."""

    url: str
    secret: str | None = SECRET
    """The secret of the client; None: it is a public one."""
    methods: tuple[str, ...] | None = None
    """How the configuration says that clients authenticate."""
    changes: dict[str, object] = attrs.field(factory=dict[str, object])
    """Claims of the ID token that differ from the right ones; `...` for one that is missing."""
    refusal: dict[str, str] | None = None
    """What it sends the browser back with, in place of a code."""
    reply: Any = None
    """What the token endpoint answers in place of a token: a status, or a document."""
    sign: Any = None
    """Returns the ID token of claims; None: it is signed with the key of the provider."""
    sent: list[dict[str, str]] = attrs.field(factory=list[dict[str, str]])
    """The forms that the token endpoint has received."""
    codes: dict[str, dict[str, str]] = attrs.field(factory=dict[str, dict[str, str]])
    """The queries with which a browser came, by the codes that are not used."""

    def consent(self, address: str) -> str:
        """Sign the person in who was led to an address, and return the address to which the browser goes back."""
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.url}/authorize"
        query = dict(parse_qsl(parts.query, strict_parsing=True))
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        assert query["client_id"] == CLIENT
        assert "openid" in query["scope"].split()
        if self.refusal is not None:
            answer = self.refusal
        else:
            code = secrets.token_urlsafe(16)
            self.codes[code] = query
            answer = {"code": code, "session_state": "of the provider alone"}
        return f"{query['redirect_uri']}?{urlencode({**answer, 'state': query['state']})}"

    def exchange(self, form: dict[str, str], authorization: str | None) -> tuple[int, object]:
        """Return the status and the answer of the token endpoint."""
        self.sent.append(form)
        if isinstance(self.reply, int):
            return self.reply, {"error": "server_error"}
        if self.reply is not None:
            return 200, self.reply
        if not self._is_client(form, authorization):
            return 401, {"error": "invalid_client"}
        query = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            query is None
            or challenge != query["code_challenge"]
            or form["redirect_uri"] != query["redirect_uri"]
        ):
            return 400, {"error": "invalid_grant"}
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": self._token(query["nonce"])}

    def _is_client(self, form: Mapping[str, str], authorization: str | None) -> bool:
        if self.secret is None:
            return form.get("client_id") == CLIENT and authorization is None
        if authorization is None:
            is_allowed = self.methods is not None and "client_secret_post" in self.methods
            return is_allowed and (form.get("client_id"), form.get("client_secret")) == (CLIENT, self.secret)
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        return [unquote_plus(one) for one in pair.split(":")] == [CLIENT, self.secret]

    def _token(self, nonce: str) -> str:
        now = datetime.now(UTC)
        claims: dict[str, object] = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": "ann",
            "exp": now + timedelta(seconds=60),
            "iat": now,
            "nonce": nonce,
            "groups": ["shop"],
            "email": "ann@example.com",
            **self.changes,
        }
        given = {name: value for name, value in claims.items() if value is not ...}
        if self.sign is not None:
            return cast("str", self.sign(given))
        return jwt.encode(given, rsa_key("one"), "RS256", headers={"kid": "one"})


class _Server(ThreadingHTTPServer):
    provider: Provider


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        provider = cast("_Server", self.server).provider
        match urlsplit(self.path).path:
            case "/.well-known/openid-configuration":
                document: dict[str, object] = {
                    "issuer": provider.url,
                    "jwks_uri": f"{provider.url}/keys",
                    "authorization_endpoint": f"{provider.url}/authorize",
                    "token_endpoint": f"{provider.url}/token",
                }
                if provider.methods is not None:
                    document["token_endpoint_auth_methods_supported"] = provider.methods
                self._answer(200, document)
            case "/keys":
                self._answer(200, {"keys": [rsa_jwk("one")]})
            case "/authorize":  # as a browser opens it: a page on which a person consents
                back = provider.consent(f"{provider.url}{self.path}")
                self._send(200, "text/html", f'<a href="{back.replace("&", "&amp;")}">Allow</a>'.encode())
            case _:
                self._answer(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = dict(parse_qsl(body, strict_parsing=True))
        self._answer(*cast("_Server", self.server).provider.exchange(form, self.headers.get("Authorization")))

    def _answer(self, status: int, document: object) -> None:
        self._send(status, "application/json", json.dumps(document).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        del format, args


@contextmanager
def provider_at_work() -> Generator[Provider]:
    """Provide a provider that answers requests."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.provider = Provider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
