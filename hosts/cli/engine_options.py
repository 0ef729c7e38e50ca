"""The options that select a store, and the import of engines, workflows and sinks by `MODULE:NAME`."""

import contextlib
import difflib
import functools
import getpass
import importlib
import math
import re
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

import attrs
import click

from holdfast.hosts.cli.backends import (
    KEY_VARIABLE,
    SERVER_VARIABLE,
    Backend,
    StoreBackend,
    refuse_over_http,
    server_backend,
)
from holdfast.hosts.cli.configuration import FILE_NAME, configuration
from holdfast.hosts.cli.console import screen_options
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.registry import Registry
from holdfast.hosts.wiring.stores import PATIENCE, check_schema, schema_of
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.actors import Actor
from holdfast.ports.events import EventSink
from holdfast.ports.urls import shown_url

ENGINE_VARIABLE: Final = "HOLDFAST_ENGINE"
URL_VARIABLE: Final = "HOLDFAST_URL"
ACTOR_VARIABLE: Final = "HOLDFAST_ACTOR"
_ENGINE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*|[a-z]+(\+[a-z]+)?://.*", re.ASCII)
_STORE_EXITS: Final = (Exit.OK, Exit.USAGE, Exit.UNAVAILABLE, Exit.SCHEMA)


@attrs.frozen(kw_only=True)
class Target:
    """The arguments of a command, and the values of `--url` and its related options."""

    words: tuple[str, ...] = ()
    """The arguments: an optional ENGINE, and those of the command."""
    url: str | None = None
    """The store's URL; None if an ENGINE argument or the environment names the engine."""
    server: str | None = None
    """The URL of the server; None if the environment names it, or the store is used."""
    namespace: str | None = None
    """The namespace; `default` if None."""
    blobs: str | None = None
    """The URL of the blob store."""
    transport: str | None = None
    """The URL of the transport."""
    scheduler: str | None = None
    """The URL of the scheduler."""
    patience: float | None = None
    """How long to retry while the database is unreachable, in seconds."""
    actor: Actor | None = None
    """Who issues the command; None if the operating system has no name for the user."""

    def split(self, *wanted: str) -> tuple[str | None, tuple[str, ...]]:
        """Split the arguments into the optional ENGINE and one argument for each name. Raises UsageError."""
        words = self.words
        if len(words) == len(wanted) + 1:
            if wanted and ":" not in words[0]:
                raise click.UsageError(
                    f"expected [ENGINE] {' '.join(wanted)}, got {' '.join(words)}: an engine is MODULE:ENGINE or a"
                    " URL"
                )
            return words[0], words[1:]
        if len(words) == len(wanted):
            return None, words
        if len(words) < len(wanted):
            raise click.UsageError(f"{' and '.join(wanted[len(words) :])} is missing")
        raise click.UsageError(f"unexpected argument {words[len(wanted) + 1]!r}")

    @contextlib.contextmanager
    def opened(self, *wanted: str, checks_schema: bool = True) -> Generator[tuple[Engine, tuple[str, ...]]]:
        """Split the arguments and open the engine. See `split` and `engine_at`."""
        spec, named = self.split(*wanted)
        with self.engine_at(spec, checks_schema=checks_schema) as engine:
            yield engine, named

    @contextlib.contextmanager
    def backend(self, *wanted: str) -> Generator[tuple[Backend, tuple[str, ...]]]:
        """Split the arguments, and open the engine or the server that they or the environment name.

        See `split` and `engine_at`.
        """
        spec, named = self.split(*wanted)
        with self.backend_at(spec) as found:
            yield found, named

    @contextlib.contextmanager
    def backend_at(self, spec: str | None) -> Generator[Backend]:
        """Open the engine at `spec` or, without one, the server or the engine that an option or the environment names.

        Raises as `engine_at`.
        """
        server = self.server_at(spec)
        if server is None:
            with self.engine_at(spec) as engine:
                yield StoreBackend(engine)
            return
        for option in ("blobs", "transport", "scheduler"):
            if getattr(self, option) is not None:
                raise click.UsageError(f"--{option} needs --url; the server has its own")
        namespace = self.namespace or _text("namespace")
        with server_backend(server, configuration().key(server), namespace, _seconds(self.patience)) as found:
            yield found

    def server_at(self, spec: str | None) -> str | None:
        """Return the URL of the server to use; None for the store. Raises UsageError if both are named."""
        named = "--url" if self.url is not None else spec
        if named is not None:
            if self.server is not None:
                raise click.UsageError(f"pass {named} or --server, not both")
            return None
        return self.server or configuration().server()

    @contextlib.contextmanager
    def engine_at(self, spec: str | None, *, checks_schema: bool = True) -> Generator[Engine]:
        """Open the engine that `spec`, `--url` or the environment names; close it at the end of the block.

        Raises UsageError, CliError if the module cannot be imported, and SchemaError unless `checks_schema` is False.
        """
        if spec is not None and self.url is not None:
            raise click.UsageError(f"pass {spec!r} or --url, not both")
        if self.server_at(spec) is not None:
            # Nor is an engine of the environment used: it may have another store than the server.
            raise refuse_over_http(f"`{click.get_current_context().command_path}`")
        if spec is None and self.url is None:
            spec = configuration().store()
        url = self.url or (spec if spec and "://" in spec else None)
        if url is None and spec is None:
            raise click.UsageError(
                f"name the store: MODULE:ENGINE or --url URL, set {ENGINE_VARIABLE} or {URL_VARIABLE}, or write engine"
                f" or url in {FILE_NAME}"
            )
        if url is None and spec is not None and ":" not in spec:
            raise _bad(
                f"{spec!r} is not an engine: write MODULE:ENGINE, such as shop.workflows:engine, or the URL of a store,"
                " such as sqlite:///runs.db"
            )
        engine = self._engine_of_module(spec or "") if url is None else self._engine_of_url(url)
        engine.core.lifecycle.reopen()  # a program may run several commands on one engine
        # An old checkout on somebody's machine must not put back the schedules that its code declares.
        engine.core.applies_declarations = False
        try:
            if url is not None and checks_schema:
                check_schema(engine.core.stores)
            yield engine if self.actor is None else engine.acting_as(self.actor)
        finally:
            engine.core.applies_declarations = True
            engine.core.close()

    @contextlib.contextmanager
    def engine_with_code(self, spec: str | None, command: str) -> Generator[Engine]:
        """Open the engine that `spec` or the environment names, as `engine_at`. UsageError for the URL of a store."""
        spec = self.url or spec or default_engine()
        if "://" in spec:
            raise click.UsageError(
                f"{shown_url(spec)} is a store's URL, which has no workflows: `holdfast {command}` needs "
                "MODULE:ENGINE, as in shop.workflows:engine"
            )
        with self.engine_at(spec) as engine:
            yield engine

    def _engine_of_module(self, spec: str) -> Engine:
        for option in ("namespace", "blobs", "transport", "scheduler", "patience"):
            if getattr(self, option) is not None:
                raise click.UsageError(f"--{option} needs --url; {spec} has its own")
        return load_engine(spec)

    def _engine_of_url(self, url: str) -> Engine:
        patience = _seconds(self.patience)
        return Engine.open(
            url,
            blobs=self.blobs or _text("blobs"),
            transport=self.transport or _text("transport"),
            scheduler=self.scheduler or _text("scheduler"),
            namespace=self.namespace or _text("namespace") or "default",
            migrate=False,
            patience=PATIENCE if patience is None else patience,
        )


def is_engine(word: str) -> bool:
    """Return whether an argument can only be an engine or a URL, and neither a workflow nor JSON."""
    return _ENGINE.fullmatch(word) is not None


def _text(name: str) -> str | None:
    """Return a text of the environment or the configuration file; None if it has none."""
    found = configuration().value(name)
    return None if found is None else str(found)


def _seconds(given: float | None) -> float | None:
    """Return the option `--patience`, or else what is configured. UsageError for a configured value that is wrong."""
    found = _text("patience") if given is None else None
    if found is None:
        return given
    try:
        seconds = float(found)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise click.UsageError(f"patience {found}: it must be a number of seconds, greater than 0")
    return seconds


def _actor(_: click.Context, __: click.Parameter, text: str | None) -> Actor | None:
    """Return the actor that an option names; by default the user of the operating system."""
    if text:
        kind, colon, name = text.partition(":")
        return Actor(kind, name) if colon else Actor("user", text)
    try:
        return Actor("user", getpass.getuser())
    except (OSError, KeyError, ImportError):  # what it raises without a name depends on Python's version
        return None


actor_option: Final = click.option(
    "--actor",
    envvar=ACTOR_VARIABLE,
    callback=_actor,
    metavar="[KIND:]ID",
    help=f"Who issues the command, such as ann or service:billing. [{ACTOR_VARIABLE}]  [default: your user name]",
)
"""The option that names the actor of a command. Its body gets an `actor`."""


def engine_command(
    name: str, words: str, *codes: Exit, help: str | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator: a command that takes `words` and opens a store.

    Args:
        name: The last word of the command.
        words: The arguments, as in `[ENGINE] ID`.
        codes: The exit codes beyond those of every command that opens a store.
        help: The help; the docstring by default.
    """

    def make(body: Callable[..., None]) -> click.Command:
        taking = click.argument("words", nargs=-1, metavar=words)(body)
        return click.command(name, help=help, epilog=exits(*_STORE_EXITS, *codes))(taking)

    return make


_server_option: Final = click.option(
    "--server",
    metavar="URL",
    help=f"A server, instead of the store. Its key is in {KEY_VARIABLE}. [{SERVER_VARIABLE}]",
)


def engine_options(body: Callable[..., None]) -> Callable[..., None]:
    """Add `--url`, `--server` and what belongs to them to a command. Its body gets a `target` and a `screen`."""
    return _with_target(body, _server_option, "a URL or a server", "database, or the server,")


def store_options(body: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `engine_options` to a command that no server can carry out: all but `--server`."""
    return _with_target(body, _unchanged, "a URL", "database")


def _with_target(
    body: Callable[..., None],
    add_server: Callable[[Callable[..., None]], Callable[..., None]],
    which: str,
    what: str,
) -> Callable[..., None]:
    @click.option("--url", metavar="URL", help=f"The store, instead of ENGINE. [{URL_VARIABLE}]")
    @add_server
    @click.option(
        "--namespace",
        metavar="NAME",
        help=f"With {which}: the namespace. [HOLDFAST_NAMESPACE]  [default: default]",
    )
    @click.option(
        "--blobs",
        metavar="URL",
        help="With a URL: where large values are stored, such as file:///a/folder or s3://bucket/prefix.",
    )
    @click.option(
        "--transport",
        metavar="URL",
        help="With a URL: the transport of hints, such as https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE or "
        "nats://HOST:4222.  [default: the store]",
    )
    @click.option(
        "--scheduler",
        metavar="URL",
        help="With a URL: the scheduler that wakes sleeping runs, such as eventbridge://GROUP?role=ARN.  "
        "[default: the workers]",
    )
    @click.option(
        "--patience",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help=f"With {which}: how long to retry while the {what} is unreachable.  [default: {PATIENCE:g}]",
    )
    @actor_option
    @screen_options
    @functools.wraps(body)
    def with_target(**options: Any) -> None:
        names = [field.name for field in attrs.fields(Target)]
        target = Target(**{name: options.pop(name) for name in names if name in options})
        body(target=target, **options)

    return with_target


def _unchanged(body: Callable[..., None]) -> Callable[..., None]:
    return body


def default_engine() -> str:
    """Return `MODULE:ENGINE` from the environment or the configuration file. Raises UsageError if neither has it."""
    spec = _text("engine")
    if spec is None:
        raise click.UsageError(
            f"name the engine: MODULE:ENGINE, set {ENGINE_VARIABLE}, or write engine in {FILE_NAME}"
        )
    return spec


def load_engine(spec: str) -> Engine:
    """Import `MODULE:ENGINE` and return the engine. The current folder is searched first. Raises CliError."""
    module_name, colon, path = spec.partition(":")
    if not colon or not _are_names(*module_name.split("."), *path.split(".")):
        raise _bad(f"{spec!r} is not an engine: write MODULE:ENGINE, such as shop.workflows:engine")
    found = load_object(module_name, path)
    if not isinstance(found, Engine):
        kind = type(found).__name__
        raise _bad(f"{spec} is of type {kind}, not Engine: create one with Engine.open(url, workflows=[...])")
    return found


def load_code(specs: Sequence[str]) -> Registry:
    """Import modules and return their workflows, and the workflows of their engines.

    `MODULE` means everything in the module, `MODULE:NAME` one engine or workflow. Without arguments, the engine that
    the environment names is used. Raises CliError if there are no workflows.
    """
    found: dict[int, WorkflowDefinition[object]] = {}
    for spec in specs or (default_engine(),):
        module_name, colon, path = spec.partition(":")
        if not _are_names(*module_name.split("."), *(path.split(".") if colon else ())):
            raise _bad(
                f"{spec!r} is not a module: write MODULE, or MODULE:NAME, such as shop.workflows:engine"
            )
        one = load_object(module_name, path)
        inside: list[object] = list(vars(one).values()) if isinstance(one, ModuleType) else [one]
        several = _workflows_of(inside)
        if not several:
            raise _bad(f"{spec} has no workflows, and no engine with workflows")
        found.update((id(workflow), workflow) for workflow in several)
    return Registry(found.values())


def load_object(module_name: str, path: str) -> object:
    """Import a module and return the object at a dotted path in it; the module itself if the path is empty."""
    if module_name.endswith(".py"):
        raise _bad(
            f"{module_name!r} is the name of a file, not of a module: write"
            f" {module_name.removesuffix('.py').replace('/', '.')}{path and ':'}{path}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: object = _imported(module_name)
    for name in path.split(".") if path else ():
        try:
            found = getattr(found, name)
        except AttributeError:
            raise _bad(f"{module_name!r} has no {path!r}{_others(found, name)}") from None
        except (Exception, SystemExit) as error:  # of a property, or of the module's `__getattr__`
            raise _broken(f"reading {path!r} of {module_name!r}", error) from error
    return found


def _are_names(*parts: str) -> bool:
    return all(part.isidentifier() for part in parts)


def _workflows_of(values: Sequence[object]) -> list[WorkflowDefinition[object]]:
    found: list[WorkflowDefinition[object]] = []
    for value in values:
        if isinstance(value, Engine):
            found += value.core.registry.workflows
        elif isinstance(value, Pipeline | Workflow):
            found.append(cast("WorkflowDefinition[object]", value))
    return found


def load_sink(spec: str) -> EventSink:
    """Import `MODULE:OBJECT` and return it as an event sink. Raises CliError."""
    module_name, colon, path = spec.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), path)):
        raise _bad(f"{spec!r} is not a sink: write log, a URL, or MODULE:OBJECT")
    found = load_object(module_name, path)
    if not callable(getattr(found, "emit", None)):
        raise _bad(f"{spec} is not a sink: it has no method `emit`")
    return cast("EventSink", found)


def schema_there(engine: Engine) -> str | None:
    """Return the version of a store's tables; None without tables."""
    return schema_of(engine.core.stores)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            hint = f"searched {Path.cwd()} and sys.path"
            raise _bad(f"no module {error.name!r}; {hint}") from None
        raise _broken(f"importing {name!r}", error) from error
    except (Exception, SystemExit) as error:
        raise _broken(f"importing {name!r}", error) from error


def _broken(what: str, error: BaseException) -> CliError:
    """Return the error for user code that failed. Its detail is the traceback without the frames of the machinery."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None and _is_machinery(at.tb_frame.f_code.co_filename):
        at = at.tb_next
    detail = "".join(traceback.format_exception(type(error), error, at))
    message = f"{what} failed: {type(error).__name__}: {error}"
    return CliError(Exit.USAGE, "engine", message, detail=detail)


def _is_machinery(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def _others(owner: object, name: str) -> str:
    """Return a hint for a missing name: the engines of the module, or else a name that is spelt similarly."""
    inside: dict[str, object] = getattr(owner, "__dict__", {})
    engines = [each for each, value in inside.items() if isinstance(value, Engine)]
    if engines:
        return f"; its engines: {', '.join(sorted(engines))}"
    close = difflib.get_close_matches(name, dir(owner), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _bad(message: str) -> CliError:
    return CliError(Exit.USAGE, "engine", message)
