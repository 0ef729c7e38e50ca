"""The configuration file of the command line: `holdfast.toml`, or `[tool.holdfast]` in `pyproject.toml`.

An option of a command takes precedence over the environment, and that over the file. Secrets are not in the file: it
names the files that hold them.
"""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import attrs
import click

from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.ports.urls import secrets_of

FILE_NAME: Final = "holdfast.toml"
PYPROJECT: Final = "pyproject.toml"
VARIABLE: Final = "HOLDFAST_CONFIG"
ARGUMENTS: Final = "holdfast.arguments"
"""The key in the `meta` of click's context under which the arguments of the command line are."""
_META: Final = "holdfast.configuration"
_TABLE: Final = "tool.holdfast"
_FILE_MAX: Final = 1_000_000
"""The size of a configuration file, and of a file with a secret, in bytes: what is larger is another file."""

Value = str | int | float | bool | Sequence[str]


@attrs.frozen
class Key:
    """A key of the file."""

    name: str
    """Its name, with the table that it is in, such as `serve.port`."""
    kind: str
    """What it takes: a key of `_KINDS`."""
    parameter: str = ""
    """The parameter of the command that takes it, if it has another name."""

    @property
    def variable(self) -> str:
        """The environment variable that takes precedence."""
        # The variable of a key without a table has what is in the file; that of an option has the name of the file.
        name = self.name if "." in self.name else self.name.removesuffix("_file")
        return f"HOLDFAST_{name.upper().replace('.', '_')}"


_COUNT = 'a whole number, or "auto"'
_TEXT, _URL, _FILE = "a string", "a URL, as a string", "the name of a file, as a string"
_NUMBER, _DECIMAL, _FLAG, _TEXTS = "a whole number", "a number", "true or false", "an array of strings"
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    _TEXT: (str,),
    _URL: (str,),
    _FILE: (str,),
    _NUMBER: (int,),
    _COUNT: (int, str),
    _DECIMAL: (int, float),
    _FLAG: (bool,),
    _TEXTS: (list,),
}
_TYPES: Final[Mapping[str, str]] = {
    "str": "a string",
    "bool": "a truth value",
    "int": "a whole number",
    "float": "a number",
    "list": "an array",
}
KEYS: Final = (
    Key("engine", _TEXT),
    Key("url", _URL),
    Key("url_file", _FILE),
    Key("server", _URL),
    Key("key_file", _FILE),
    Key("namespace", _TEXT),
    Key("blobs", _URL),
    Key("transport", _URL),
    Key("scheduler", _URL),
    Key("patience", _DECIMAL),
    Key("actor", _TEXT),
    Key("serve.host", _TEXT),
    Key("serve.port", _NUMBER),
    Key("serve.oidc_issuer", _TEXT),
    Key("serve.oidc_audience", _TEXT),
    Key("serve.oidc_map", _TEXTS, "grants"),
    Key("serve.oidc_subject", _TEXT),
    Key("serve.oidc_client_id", _TEXT),
    Key("serve.oidc_client_secret_file", _FILE),
    Key("serve.oidc_scopes", _TEXT),
    Key("serve.oidc_name", _TEXT),
    Key("serve.public_url", _URL),
    Key("serve.read_only", _FLAG),
    Key("serve.read_timeout", _DECIMAL),
    Key("serve.keep_alive", _NUMBER),
    Key("serve.rate_limit", _DECIMAL),
    Key("serve.browser_session_idle", _TEXT),
    Key("serve.browser_session_lifetime", _TEXT),
    Key("serve.insecure_cookies", _FLAG),
    Key("serve.root_path", _TEXT),
    Key("serve.worker", _FLAG),
    Key("serve.metrics_port", _NUMBER),
    Key("serve.metrics_host", _TEXT),
    Key("worker.concurrency", _NUMBER),
    Key("worker.processes", _COUNT),
    Key("worker.queues", _TEXTS),
    Key("worker.lease", _DECIMAL),
    Key("worker.drain_grace", _DECIMAL),
    Key("worker.retention", _TEXT),
    Key("worker.name", _TEXT),
    Key("worker.metrics_port", _NUMBER),
    Key("worker.metrics_host", _TEXT),
)
"""The keys of the file, those of tables after those of none."""
_NAMES: Final = {key.name: key for key in KEYS}
_PLACES: Final = ("engine", "url", "server")
"""Where the commands find the runs."""
_TABLES: Final = frozenset(key.name.partition(".")[0] for key in KEYS if "." in key.name)


@attrs.frozen(kw_only=True)
class Configuration:
    """The values of the file and of the environment, by the names of keys."""

    file: str = ""
    """The name of the file, as it is shown; empty without one."""
    in_file: Mapping[str, Value] = attrs.field(factory=dict[str, Value])
    """What the file has. `key_file` and `url` have the text of the files that are named."""
    environment: Mapping[str, str] = attrs.field(factory=dict[str, str])

    def value(self, name: str) -> Value | None:
        """Return the value of a key: that of the environment, or else that of the file."""
        return self.environment.get(_NAMES[name].variable) or self.in_file.get(name)

    def store(self) -> str | None:
        """Return the engine, or else the URL of the store."""
        return self._first("engine", "url")

    def server(self) -> str | None:
        """Return the URL of the server."""
        return self._first("server")

    def key(self, server: str) -> str | None:
        """Return the API key for a server: that of the environment, or that of the file for the server of the file."""
        if found := self.environment.get(_NAMES["key_file"].variable):
            return found
        key = self.in_file.get("key_file")
        return str(key) if key is not None and server == self.in_file.get("server") else None

    def _first(self, *names: str) -> str | None:
        """Return the value of the first key that has one. The file has none if the environment names a store or server.

        So a variable selects one for a single command, whatever the file names.
        """
        by_environment = {
            key: found for key in _PLACES if (found := self.environment.get(_NAMES[key].variable))
        }
        values: Mapping[str, Value] = by_environment or self.in_file
        return next((str(values[name]) for name in names if name in values), None)

    def options(self, command: str) -> Mapping[str, Value]:
        """Return the values for the options of a command, such as `serve`, by the names of its parameters."""
        found: dict[str, Value] = {}
        for key in KEYS:
            table, _, name = key.name.rpartition(".")
            value = self.value(key.name) if table == command or key.name == "actor" else None
            if isinstance(value, str) and key.kind == _TEXTS:  # of the environment
                value = value.split()
            if key.kind == _FILE and value is not None and not self.environment.get(key.variable):
                value = str(Path(self.file).parent / str(value))
            if value is not None:
                found[key.parameter or name] = value
        return found

    def origin(self, command: str, parameter: str) -> str:
        """Return where the value of a parameter is from, such as `serve.port in holdfast.toml`."""
        for key in KEYS:
            table, _, name = key.name.rpartition(".")
            if table == command and parameter == (key.parameter or name):
                is_in_file = not self.environment.get(key.variable)
                return f"{key.name} in {self.file}" if is_in_file else key.variable
        return self.file

    @property
    def secrets(self) -> Sequence[str]:
        """The credentials in the values of the file, to be masked in errors and logs."""
        key, url = self.in_file.get("key_file"), self.in_file.get("url")
        in_urls = (secret for value in self.in_file.values() for secret in _secrets(value))
        # A misspelt URL of a file with a secret is shown as it is, so all of it is masked.
        misspelt = () if url is None or "://" in str(url) else (str(url),)
        return (*in_urls, *misspelt, *(() if key is None else (str(key),)))


def configuration() -> Configuration:
    """Return the configuration of the command that runs; that of the environment alone outside of one."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_META)
    return found if isinstance(found, Configuration) else Configuration(environment=os.environ)


def load_configuration(context: click.Context, file: str | None) -> Configuration:
    """Read the file, by default one in the current folder, and keep the result for the command. Raises CliError."""
    path = _default_file() if file is None else Path(file)
    name = "" if path is None else str(path)
    in_file = {} if path is None else _checked(path, _document(path, is_wanted=file is not None))
    found = Configuration(file=name, in_file=in_file, environment=os.environ)
    context.meta[_META] = found
    return found


def _default_file() -> Path | None:
    return next((path for name in (FILE_NAME, PYPROJECT) if (path := Path(name)).is_file()), None)


def _document(path: Path, *, is_wanted: bool) -> Mapping[str, object]:
    """Return the tables of a file; of `pyproject.toml` what is in its table, which it needs if the file `is_wanted`."""
    try:
        document: Mapping[str, object] = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise _bad(f"{path} is not TOML: {error}") from None
    if path.name != PYPROJECT:
        return document
    table = _table(_table(document, "tool"), "holdfast")
    if not table and is_wanted:
        raise _bad(f"{path} has no table [{_TABLE}]")
    return table


def _table(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = document.get(name)
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_MAX + 1)
    except OSError as error:
        raise _bad(f"{path} can't be read: {error.strerror}") from None
    if len(content) > _FILE_MAX:
        raise _bad(f"{path} is longer than {_FILE_MAX:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _bad(f"{path} is not UTF-8") from None


def _checked(path: Path, document: Mapping[str, object]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, value in _flat(path, document):
        key = _NAMES.get(name)
        if key is None or isinstance(value, dict):
            what = "table" if isinstance(value, dict) else "key"
            raise _bad(f"{path} has an unknown {what}, {name!r}{_nearest(name, what)}")
        if not _fits(value, key.kind):
            raise _bad(f"{path}: {name} must be {key.kind}, not {_kind_of(value)}")
        if (key.kind == _URL or key.name == "engine") and any(_secrets(value)):
            raise _bad(
                f"{path}: {name} has a password or a token, which does not belong in this file: "
                + ("write the URL to a file of its own, and its name as url_file, " if name == "url" else "")
                + f"{'or ' if name == 'url' else ''}set {key.variable}"
            )
        found[name] = cast("Value", value)
    if "url_file" in found:
        if "url" in found:
            raise _bad(f"{path} has url and url_file: omit one of them")
        found["url"] = _secret(path, found.pop("url_file"))
    if "key_file" in found:
        found["key_file"] = _secret(path, found["key_file"])
    return found


def _secret(path: Path, file: Value) -> str:
    """Return what is in a file beside the configuration file, without the line break at its end."""
    found = _text(path.parent / str(file)).strip()
    if not found or len(found.splitlines()) > 1:
        raise _bad(f"{path.parent / str(file)} must have one line")
    return found


def _flat(path: Path, document: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield each key with the name of its table."""
    for name, value in document.items():
        if name not in _TABLES:
            yield name, value
        elif not isinstance(value, dict):
            raise _bad(f"{path}: {name} is a table: write [{name}]")
        else:
            yield from ((f"{name}.{inner}", one) for inner, one in cast("dict[str, object]", value).items())


def _fits(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == _FLAG
    if isinstance(value, list):
        return kind == _TEXTS and all(isinstance(one, str) for one in cast("list[object]", value))
    return isinstance(value, _KINDS[kind]) and value != ""


def _kind_of(value: object) -> str:
    """Return what a value is; not the value, which may be a secret."""
    if value == "":
        return "an empty string"
    return _TYPES.get(type(value).__name__, "a table, a date or a time")


def _nearest(name: str, what: str) -> str:
    """Return a hint: the key of another table with this name, or what is spelt most similarly, or all."""
    known = sorted(_TABLES) if what == "table" else list(_NAMES)
    last = name.rpartition(".")[2]
    close = [key for key in known if key.rpartition(".")[2] == last]
    close = close or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    close = close or [key for key in known if difflib.get_close_matches(last, [key.rpartition(".")[2]])]
    return f"; did you mean {close[0]!r}?" if close else f": it may have {', '.join(known)}"


def _secrets(value: object) -> Iterator[str]:
    if isinstance(value, str) and "://" in value:
        yield from secrets_of(value)


def _bad(message: str) -> CliError:
    return CliError(Exit.USAGE, "configuration", message)
