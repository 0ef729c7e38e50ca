"""A real PostgreSQL for the tests: private, empty, and removed afterwards.

The server runs from the binaries that `make` unpacks into .cache/postgres and listens on 127.0.0.1 only. It trusts
every connection: it holds nothing and lives as long as the tests.
"""

import contextlib
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

ROOT: Final = Path(__file__).resolve().parent.parent
FETCHED: Final = ROOT / ".cache" / "postgres" / "pgserver" / "pginstall" / "bin"
# Below the range from which systems draw the ports of outgoing connections: one of those must not take our port
# while the server is down for a restart.
PORTS: Final = range(20_000, 32_000)
START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 60.0

StopMode = Literal["smart", "fast", "immediate"]
_SIGNALS: Final[Mapping[StopMode, signal.Signals]] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
# When we die without a word, our end of the pipe closes, and this ends the server and removes its folder.
_GUARD: Final = 'cat >/dev/null; kill -QUIT "$1" 2>/dev/null; sleep 1; rm -rf -- "$2"'


class _Account(NamedTuple):
    """The account under which the server runs; None for the current one."""

    user: int | None = None
    group: int | None = None
    extra_groups: list[int] | None = None


class PostgresFailedError(Exception):
    """The server could not be started or stopped."""


class PrivatePostgres:
    """A private PostgreSQL server.

    Its URL and data stay the same when it is stopped and restarted: a stop with mode "immediate" is a crash, and the
    next start recovers from the log. With `durable`, writes also survive a crash of the machine, at the price of an
    fsync for each commit: for benchmarks, not for tests.
    """

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        """Create a server with these settings, as in postgresql.conf, without starting it."""
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "max_connections": "300",
            "fsync": "on" if durable else "off",
            "full_page_writes": "on" if durable else "off",
            **(settings or {}),
        }
        self._folder: Path | None = None
        self._binaries = Path()
        self._account = _Account()
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of its first database, as a superuser: `postgresql://postgres@127.0.0.1:port/postgres`."""
        assert self._port, "start it first"
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    @property
    def log(self) -> str:
        """The server's log so far."""
        path = None if self._folder is None else self._folder / "server.log"
        return path.read_text(errors="replace") if path is not None and path.exists() else ""

    def start(self) -> None:
        """Start the server and wait until it takes connections. Does nothing if it is running."""
        if self._process is not None and self._process.poll() is None:
            return None
        self.stop()
        if self._folder is not None:
            self._launch(self._folder)
            return None
        self._folder = folder = self._create_cluster()
        for _ in range(5):
            self._port = _free_port()
            with contextlib.suppress(PostgresFailedError):  # another process may have been quicker
                return self._launch(folder)
        raise PostgresFailedError(f"PostgreSQL does not start:\n{self.log}")

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server, if it is running: "fast" rolls back and shuts down, "immediate" is a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if process.poll() is None:
                process.send_signal(_SIGNALS[mode])
                process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise PostgresFailedError(f"PostgreSQL does not stop ({mode}):\n{self.log}") from None
        finally:
            self._dismiss_guard()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop the server in the given mode and start it again, at the same URL."""
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        """Stop the server and remove its data."""
        self.stop("immediate")
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
        self._port = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _create_cluster(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self._account = account = _server_account()
        if account.user is not None and account.group is not None:
            os.chown(folder, account.user, account.group)
        self._binaries = _binaries_for(account, folder)
        command = [str(self._binaries / "initdb"), "-D", str(folder / "data"), "-U", "postgres"]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(
            command,
            user=account.user,
            group=account.group,
            extra_groups=account.extra_groups,
            cwd=folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)
            raise PostgresFailedError(f"initdb failed:\n{done.stdout}{done.stderr}")
        return folder

    def _launch(self, folder: Path) -> None:
        command = [str(self._binaries / "postgres"), "-D", str(folder / "data"), "-p", str(self._port)]
        for name, value in {**self._settings, "unix_socket_directories": str(folder)}.items():
            command += ["-c", f"{name}={value}"]
        with (folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                user=self._account.user,
                group=self._account.group,
                extra_groups=self._account.extra_groups,
                cwd=folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests; they stop the server when they are done with it
            )
        self._process = process
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(process.pid), str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        limit = time.monotonic() + START_SECONDS_MAX
        while not _is_ready(folder / "data" / "postmaster.pid", process.pid):
            if process.poll() is not None or time.monotonic() > limit:
                self.stop("immediate")
                raise PostgresFailedError(f"PostgreSQL does not start:\n{self.log}")
            time.sleep(0.01)

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
            if self._guard.stdin is not None:
                self._guard.stdin.close()
            self._guard = None


@contextlib.contextmanager
def fresh_database(url: str, *, like: str | None = None) -> Generator[str]:
    """Create a database on the server of `url`, yield its URL, and drop it with all connections.

    It is empty, or a copy of the database at the URL `like`, which must have no connections.
    """
    name = f"holdfast_{secrets.token_hex(6)}"
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if like is not None:
        create += sql.SQL(" TEMPLATE {}").format(sql.Identifier(urlsplit(like).path.removeprefix("/")))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(create)
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )


def plain_url(url: str) -> str:
    """Take the driver out of an SQLAlchemy URL: `postgresql+psycopg://...` becomes `postgresql://...`."""
    scheme, rest = url.split("://", 1)
    return f"{scheme.split('+', 1)[0]}://{rest}"


def find_binaries() -> Path:
    """Return the folder of `initdb` and `postgres`: those that `make` fetched, or else those on the PATH."""
    if (FETCHED / "initdb").exists():
        return FETCHED
    if (found := shutil.which("initdb")) is not None and (Path(found).resolve().parent / "postgres").exists():
        return Path(found).resolve().parent
    raise PostgresFailedError(
        "There is no PostgreSQL to test with: remove .cache and run `make test`, or set HOLDFAST_TEST_POSTGRES_URL"
    )


def _server_account() -> _Account:
    """Return the account for the server. PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return _Account()
    nobody = pwd.getpwnam("nobody")
    return _Account(nobody.pw_uid, nobody.pw_gid, [])


def _binaries_for(account: _Account, folder: Path) -> Path:
    """Return the binaries' folder, or that of a copy if the account cannot read the first (a checkout in /root)."""
    binaries = find_binaries()
    try:
        subprocess.run(
            [str(binaries / "postgres"), "--version"],
            user=account.user,
            group=account.group,
            extra_groups=account.extra_groups,
            cwd="/",
            stdout=subprocess.DEVNULL,
            check=True,
        )
    except PermissionError:
        top = FETCHED.parent.parent.parent
        if not binaries.is_relative_to(top):
            raise
        copy = folder / "postgres"
        shutil.copytree(top, copy)
        return copy / binaries.relative_to(top)
    return binaries


def _environment() -> dict[str, str]:
    """Return the environment without variables that change a server's or a client's defaults."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}


def _free_port() -> int:
    """Return a free port. Drawn at random, so that processes seldom draw the same."""
    draw = random.SystemRandom()
    for _ in range(100):
        port = draw.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise PostgresFailedError(f"No free port between {PORTS.start} and {PORTS.stop}")


def _is_ready(path: Path, pid: int) -> bool:
    """Return whether the last line of the pid file says `ready`, as pg_ctl does."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"
