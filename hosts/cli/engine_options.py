"""Which store a command is about: an engine in a module, or a URL."""

import contextlib
import difflib
import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final, cast

import attrs
import click

from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.registry import Registry
from holdfast.hosts.wiring.stores import PATIENCE, check_schema, schema_of
from holdfast.kernel.authoring.calls import Definition
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.events import EventSink

ENGINE_VARIABLE: Final = "HOLDFAST_ENGINE"
URL_VARIABLE: Final = "HOLDFAST_URL"


@attrs.frozen(kw_only=True)
class Target:
    """What a command was told of where to work."""

    url: str | None = None
    namespace: str | None = None
    blobs: str | None = None
    transport: str | None = None
    scheduler: str | None = None
    patience: float | None = None

    def split(self, words: Sequence[str], *wanted: str) -> tuple[str | None, tuple[str, ...]]:
        """Part the words after a command into ENGINE, which may be left out, and as many others as are wanted."""
        if len(words) == len(wanted) + 1:
            return words[0], tuple(words[1:])
        if len(words) == len(wanted):
            return None, tuple(words)
        if len(words) < len(wanted):
            raise click.UsageError(f"{' and '.join(wanted[len(words) :])} is missing")
        raise click.UsageError(f"one word too many: {words[len(wanted) + 1]!r}")

    @contextlib.contextmanager
    def opened(self, spec: str | None, *, checks_schema: bool = True) -> Generator[Engine]:
        """Open the engine that a word names or, without one, the options or the environment; close it in the end."""
        if spec is not None and self.url is not None:
            raise click.UsageError(f"{spec!r} and --url: give one of them")
        if spec is None and self.url is None:
            spec = os.environ.get(ENGINE_VARIABLE) or os.environ.get(URL_VARIABLE)
        url = self.url or (spec if spec and "://" in spec else None)
        if url is None and spec is None:
            raise click.UsageError(
                f"say where: MODULE:ENGINE or --url URL, or set {ENGINE_VARIABLE} or {URL_VARIABLE}"
            )
        engine = self._engine_of_module(spec or "") if url is None else self._engine_of_url(url)
        engine.core.lifecycle.reopen()  # a program may run several commands
        try:
            if url is not None and checks_schema:
                check_schema(engine.core.stores)
            yield engine
        finally:
            engine.core.close()

    def _engine_of_module(self, spec: str) -> Engine:
        for option, given in (
            ("--namespace", self.namespace),
            ("--blobs", self.blobs),
            ("--transport", self.transport),
            ("--scheduler", self.scheduler),
            ("--patience", self.patience),
        ):
            if given is not None:
                raise click.UsageError(f"{option} goes with --url; {spec} has its own")
        return load_engine(spec)

    def _engine_of_url(self, url: str) -> Engine:
        return Engine.open(
            url,
            blobs=self.blobs,
            transport=self.transport,
            scheduler=self.scheduler,
            namespace=self.namespace or "default",
            migrate=False,
            patience=PATIENCE if self.patience is None else self.patience,
        )


def engine_options(body: Callable[..., None]) -> Callable[..., None]:
    """Give a command that needs no code `--url` and what goes with it, and its body the `target` that they name."""

    @click.option("--url", metavar="URL", help=f"The store, in place of ENGINE. [{URL_VARIABLE}]")
    @click.option("--namespace", metavar="NAME", help="With a URL: the namespace.  [default: default]")
    @click.option(
        "--blobs",
        metavar="URL",
        help="With a URL: where large values are, as file:///a/folder or s3://bucket/prefix.",
    )
    @click.option(
        "--transport",
        metavar="URL",
        help="With a URL: what carries messages, as https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE or "
        "nats://HOST:4222.  [default: the store]",
    )
    @click.option(
        "--scheduler",
        metavar="URL",
        help="With a URL: what wakes what sleeps, as eventbridge://GROUP?role=ARN.  [default: whoever works]",
    )
    @click.option(
        "--patience",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help=f"With a URL: how long to try while the database can't be reached.  [default: {PATIENCE:g}]",
    )
    @functools.wraps(body)
    def with_target(
        *,
        url: str | None,
        namespace: str | None,
        blobs: str | None,
        transport: str | None,
        scheduler: str | None,
        patience: float | None,
        **options: object,
    ) -> None:
        target = Target(
            url=url,
            namespace=namespace,
            blobs=blobs,
            transport=transport,
            scheduler=scheduler,
            patience=patience,
        )
        body(target=target, **options)

    return with_target


def default_engine() -> str:
    """Return the MODULE:ENGINE that the environment names. UsageError if it names none."""
    spec = os.environ.get(ENGINE_VARIABLE)
    if not spec:
        raise click.UsageError(f"say which engine: MODULE:ENGINE, or set {ENGINE_VARIABLE}")
    return spec


def load_engine(spec: str) -> Engine:
    """Import a module and return the engine in it that `MODULE:ENGINE` names. The folder we are in comes first."""
    module_name, colon, path = spec.partition(":")
    if not colon or not _are_names(*module_name.split("."), *path.split(".")):
        raise _bad(f"{spec!r} is no engine: write MODULE:ENGINE, as in shop.workflows:engine")
    found = load_object(module_name, path)
    if not isinstance(found, Engine):
        kind = type(found).__name__
        raise _bad(f"{spec} is of type {kind}, not Engine: make one with Engine.open(url, workflows=[...])")
    return found


def load_code(specs: Sequence[str]) -> Registry:
    """Import modules and return the workflows in them, and of the engines in them.

    `MODULE` stands for all that it has, `MODULE:NAME` for one engine or workflow. None at all stand for the engine that
    the environment names.
    """
    found: dict[int, Definition[object]] = {}
    for spec in specs or (default_engine(),):
        module_name, colon, path = spec.partition(":")
        if not _are_names(*module_name.split("."), *(path.split(".") if colon else ())):
            raise _bad(f"{spec!r} is no module: write MODULE, or MODULE:NAME, as in shop.workflows:engine")
        one = load_object(module_name, path)
        inside: list[object] = list(vars(one).values()) if isinstance(one, ModuleType) else [one]
        several = _workflows_of(inside)
        if not several:
            raise _bad(f"{spec} has no workflows, and no engine that has any")
        found.update((id(workflow), workflow) for workflow in several)
    return Registry(found.values())


def load_object(module_name: str, path: str) -> object:
    """Import a module and return what has this name in it; without one, the module."""
    if module_name.endswith(".py"):
        raise _bad(
            f"{module_name!r} names a file, not a module: {module_name.removesuffix('.py')}{path and ':'}{path}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: object = _imported(module_name)
    for name in path.split(".") if path else ():
        if not hasattr(found, name):
            raise _bad(f"{module_name!r} has no {path!r}{_others(found, name)}")
        found = getattr(found, name)
    return found


def _are_names(*parts: str) -> bool:
    return all(part.isidentifier() for part in parts)


def _workflows_of(values: Sequence[object]) -> list[Definition[object]]:
    found: list[Definition[object]] = []
    for value in values:
        if isinstance(value, Engine):
            found += value.core.registry.workflows
        elif isinstance(value, Pipeline | Workflow):
            found.append(cast("Definition[object]", value))
    return found


def load_sink(spec: str) -> EventSink:
    """Import a module and return the sink of events in it that `MODULE:OBJECT` names."""
    module_name, colon, path = spec.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), path)):
        raise _bad(f"{spec!r} is no sink: write log, a URL, or MODULE:OBJECT")
    found: object = getattr(_imported(module_name), path, None)
    if not callable(getattr(found, "emit", None)):
        raise _bad(f"{spec} is no sink: it has no method `emit`")
    return cast("EventSink", found)


def schema_there(engine: Engine) -> str | None:
    """Return the version of a store's tables; None if there are none."""
    return schema_of(engine.core.stores)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            hint = f"looked in {Path.cwd()} and where Python looks"
            raise _bad(f"there is no module {error.name!r}; {hint}") from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> CliError:
    """Tell of a module that can't be imported, with the part of the traceback that is its own."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None and _is_machinery(at.tb_frame.f_code.co_filename):
        at = at.tb_next
    detail = "".join(traceback.format_exception(type(error), error, at))
    message = f"importing {name!r} failed: {type(error).__name__}: {error}"
    return CliError(Exit.USAGE, "engine", message, detail=detail)


def _is_machinery(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def _others(owner: object, name: str) -> str:
    """Say which engines a module has, if any; else what is called almost so."""
    inside: dict[str, object] = getattr(owner, "__dict__", {})
    engines = [each for each, value in inside.items() if isinstance(value, Engine)]
    if engines:
        return f"; its engines: {', '.join(sorted(engines))}"
    close = difflib.get_close_matches(name, dir(owner), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _bad(message: str) -> CliError:
    return CliError(Exit.USAGE, "engine", message)
