"""The command `holdfast serve`: the HTTP server of an engine, by uvicorn, if wanted with a worker beside it."""

import contextlib
import socket
from collections.abc import Generator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import anyio
import click
from typing_extensions import override

from holdfast.hosts.cli.browser_session_options import BrowserSessionOptions, browser_session_options
from holdfast.hosts.cli.console import Screen, screen_options
from holdfast.hosts.cli.engine_options import default_engine, load_engine
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.cli.metrics_options import MetricsAddress, metrics_options
from holdfast.hosts.cli.oidc_options import OidcOptions, oidc_options
from holdfast.hosts.cli.process_logs import log_all
from holdfast.hosts.worker.garbage_collection import collecting_seldom
from holdfast.hosts.worker.stop_signals import stop_signals
from holdfast.hosts.worker.worker import Worker
from holdfast.ports.errors import InvalidArgumentError, UnprotectedAddressError

if TYPE_CHECKING:
    import uvicorn

    from holdfast.hosts.http.app import HttpServer
    from holdfast.hosts.http.authentication.browser_sessions import BrowserSessionSettings

BACKLOG: Final = 2_048
"""How many connections may wait to be accepted."""
KEEP_ALIVE_SECONDS: Final = 130
"""How long a connection may be idle: longer than nginx, Caddy, Traefik and Amazon's load balancers keep one.

If the server closed it first, it could do so while a proxy sends the next request on it. The proxy would answer that
request with 502, as it does not know whether the request was carried out.
"""
GRACE_SECONDS: Final = 2
"""How long requests that are being answered may take after the server is stopped."""


@click.command("serve", epilog=exits(Exit.OK, Exit.USAGE, Exit.UNAVAILABLE, Exit.SCHEMA))
@click.argument("spec", required=False, metavar="[MODULE:ENGINE]")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The address to listen at. One that is not of this machine alone needs credentials.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8_080,
    show_default=True,
    metavar="N",
    help="The port to listen at; 0 for any free one.",
)
@oidc_options
@click.option("--read-only", is_flag=True, help="Refuse everything but reading.")
@click.option(
    "--rate-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Answer at most N requests per second of each principal, on average.  [default: no limit]",
)
@browser_session_options
@click.option(
    "--read-timeout",
    type=click.FloatRange(0, 5, min_open=True),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a read of the store may take before it is stopped and answered with 503.",
)
@click.option(
    "--keep-alive",
    type=click.IntRange(1, 3_600),
    default=KEEP_ALIVE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long a connection may be idle before the server closes it. A proxy should close it earlier.",
)
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="The path that a proxy in front of the server removes, such as /holdfast.",
)
@click.option("--worker", is_flag=True, help="Run a worker in the same process.")
@metrics_options
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
@screen_options
def serve_command(
    *,
    screen: Screen,
    spec: str | None,
    host: str,
    port: int,
    oidc: OidcOptions,
    read_only: bool,
    rate_limit: float | None,
    browser_sessions: BrowserSessionOptions,
    read_timeout: float,
    keep_alive: int,
    root_path: str,
    worker: bool,
    metrics_at: MetricsAddress,
    verbose: bool,
) -> None:
    """Serve an engine over HTTP until stopped.

    Requests need an API key of the store, or a token of the issuer. While there is neither, only requests from this
    machine are answered, and the server does not start at another address. SIGTERM, SIGHUP or Ctrl-C ends open streams,
    and the process exits within a few seconds; with `--worker`, once running bodies have ended, for up to 20 seconds.
    """
    from holdfast.http import asgi_app
    from holdfast.metrics import Metrics

    if root_path and (not root_path.startswith("/") or root_path.endswith("/")):
        raise click.UsageError(f"--root-path {root_path!r}: it begins with a slash, and ends without one")
    engine = load_engine(spec or default_engine())
    log_all(screen, verbose=verbose)
    tokens, single_sign_on = oidc.tokens(), oidc.single_sign_on()
    metrics = Metrics(engine)
    server = asgi_app(
        engine,
        tokens=tokens,
        single_sign_on=single_sign_on,
        read_only=read_only,
        read_timeout=read_timeout,
        metrics=metrics,
        browser_sessions=_settings(browser_sessions),
        rate_limit=rate_limit,
    )
    with contextlib.ExitStack() as stack:
        stack.callback(engine.core.close)
        engine.core.connect()
        has_credentials = tokens is not None or bool(engine.sync.keys.list())
        _check_address(host, has_credentials=has_credentials)
        listening = stack.enter_context(listening_at(host, port))
        stack.enter_context(metrics_at.served(metrics, screen))
        if worker:
            # In a thread: no body can hold up the server's event loop.
            metrics.add_worker(stack.enter_context(Worker(engine)))
        url = _url_of(listening, root_path)
        screen.note(f"Listening at {url}, where a browser shows the dashboard")
        if screen.as_json:
            screen.line({"event": "listening", "url": url})
        if not has_credentials:
            screen.note("There is no key: requests from this machine may do everything.")
        with collecting_seldom():
            anyio.run(
                _serve, _uvicorn(server, root_path, keep_alive), listening, backend_options=_loop_options()
            )


async def _serve(server: "uvicorn.Server", listening: socket.socket) -> None:
    """Serve until a signal. The second one does not wait for answers that are being sent."""
    with anyio.open_signal_receiver(*stop_signals()) as signals:
        async with anyio.create_task_group() as group:

            async def obey() -> None:
                async for _ in signals:
                    server.force_exit = server.should_exit
                    server.should_exit = True

            group.start_soon(obey)
            await server.serve([listening])
            group.cancel_scope.cancel()


def _settings(options: BrowserSessionOptions) -> "BrowserSessionSettings":
    """Return the settings of browser sessions. UsageError for a period that is too short or too long."""
    from holdfast.hosts.http.authentication.browser_sessions import BrowserSessionSettings

    try:
        return BrowserSessionSettings(idle=options.idle, lifetime=options.lifetime, secure=options.secure)
    except InvalidArgumentError as error:
        raise click.UsageError(f"--browser-session-{error}") from None


def _check_address(host: str, *, has_credentials: bool) -> None:
    """Raise CliError for an address that other machines reach, if there are no credentials."""
    from holdfast.hosts.http.authentication.loopback import check_address

    try:
        check_address(host, has_credentials=has_credentials)
    except UnprotectedAddressError as error:
        raise CliError(Exit.USAGE, error.code, str(error)) from None


@contextlib.contextmanager
def listening_at(host: str, port: int) -> Generator[socket.socket]:
    """Provide a socket that listens. CliError if the address is in use or can't be had."""
    from holdfast.hosts.http.live_reads import SEND_SECONDS

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, as asyncio turns Nagle's algorithm off only then: answers would take 40 ms more.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Accepted connections inherit it. asyncio closes one only when its client has read what was sent so far.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SEND_SECONDS * 1_000))
        try:
            listening.bind((host.strip("[]"), port))
            listening.listen(BACKLOG)  # before its address is shown, so that the first client is not refused
        except OSError as error:
            raise CliError(
                Exit.USAGE, "address", f"can't listen at {host}, port {port}: {error.strerror}"
            ) from None
        yield listening


def _url_of(listening: socket.socket, root_path: str) -> str:
    host, port, *_ = listening.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{root_path}"


def _loop_options() -> dict[str, object]:
    """Return the options of the event loop: that of uvloop where it is installed."""
    return {"use_uvloop": find_spec("uvloop") is not None}


def _uvicorn(server: "HttpServer", root_path: str, keep_alive: int) -> "uvicorn.Server":
    """Return a uvicorn that ends open streams when it is stopped, before it waits for all answers to be complete.

    It leaves signals to its caller: by itself it would raise them again at its end, which kills the process.
    """
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            '`serve` needs uvicorn: pip install "holdfast[server]"', name=error.name
        ) from None

    class StoppingServer(uvicorn.Server):
        @contextlib.contextmanager
        @override
        def capture_signals(self) -> Generator[None]:
            yield

        @override
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            server.stop()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        server,
        # With httptools, a head has no limit, and a request that offers an upgrade, as Java's do, loses its body.
        http="h11",
        root_path=root_path,
        lifespan="off",
        log_config=None,
        # It warns of each request that offers an upgrade, and of each that is no HTTP: clients could fill the log.
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=keep_alive,
        timeout_graceful_shutdown=GRACE_SECONDS,
        proxy_headers=False,
        ws="none",
    )
    return StoppingServer(config)
