"""The options that serve metrics at an address of their own."""

import functools
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

import attrs
import click

from holdfast.hosts.cli.console import Screen
from holdfast.hosts.cli.exit_codes import CliError, Exit

if TYPE_CHECKING:
    from holdfast.hosts.metrics.metrics import Exposition, Metrics
    from holdfast.hosts.metrics.status_server import Health


@attrs.frozen(kw_only=True)
class MetricsAddress:
    """Where to serve metrics."""

    host: str
    port: int | None
    """0: any free one. None: nowhere."""

    @contextmanager
    def served_with_health(
        self,
        expose: "Callable[[str], Exposition] | None",
        health: "Callable[[], Health]",
        screen: Screen,
    ) -> Generator[None]:
        """Serve metrics and health for as long as the block lasts, if there are a port and metrics.

        Raises CliError as `served`.
        """
        if self.port is None or expose is None:
            yield
            return
        from holdfast.hosts.metrics.status_server import served_status

        with self._announced(served_status(self.host, self.port, expose, health), screen):
            yield

    @contextmanager
    def served(self, metrics: "Metrics | None", screen: Screen) -> Generator[None]:
        """Serve metrics for as long as the block lasts, if there are some. CliError if the address can't be had."""
        if metrics is None or self.port is None:
            yield
            return
        with self._announced(metrics.served(self.host, self.port), screen):
            yield

    @contextmanager
    def _announced(self, served: AbstractContextManager[str], screen: Screen) -> Generator[None]:
        with ExitStack() as stack:
            try:
                url = stack.enter_context(served)
            except OSError as error:
                raise CliError(
                    Exit.USAGE,
                    "address",
                    f"can't serve metrics at {self.host}, port {self.port}: {error.strerror or error}",
                ) from None
            screen.note(f"Metrics at {url}")
            if screen.as_json:
                screen.line({"event": "metrics", "url": url})
            yield


def metrics_options(body: Callable[..., None]) -> Callable[..., None]:
    """Add `--metrics-port` and `--metrics-host` to a command. Its body gets a `metrics_at`."""

    @click.option(
        "--metrics-port",
        type=click.IntRange(0, 65_535),
        default=None,
        metavar="N",
        help="Serve metrics for Prometheus at this port, without credentials; 0 for any free one.",
    )
    @click.option(
        "--metrics-host",
        default="127.0.0.1",
        show_default=True,
        metavar="ADDRESS",
        help="The address for --metrics-port.",
    )
    @functools.wraps(body)
    def with_address(*, metrics_host: str, metrics_port: int | None, **options: object) -> None:
        body(metrics_at=MetricsAddress(host=metrics_host, port=metrics_port), **options)

    return with_address
