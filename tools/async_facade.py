"""Generate the async client from the sync one: `python -m tools.async_facade`. With `--check`, only compare.

Each public method of a sync class becomes one with the same signature and docstring that calls it in a thread.
A method that does more calls the function of its name in `hosts/client/async_bodies.py`. Properties, class methods
and context managers are left to classes written by hand.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BODIES = "hosts/client/async_bodies.py"

IMPORTS = {
    "AsyncIterator": "collections.abc",
    "async_bodies": "holdfast.hosts.client",
    "RunHandle": "holdfast.hosts.client.run_handle",
    "TransactionCalls": "holdfast.hosts.client.transactions",
    "ScheduleHandle": "holdfast.hosts.client.schedule_handle",
    "in_thread": "holdfast.hosts.execution.threads",
    "iterate_in_thread": "holdfast.hosts.execution.threads",
}
"""What the generated code uses beyond the imports of its source, and where it is imported from."""


class Facade(NamedTuple):
    """A class to generate."""

    source: str
    sync: str
    """The sync class in `source`."""
    target: str
    name: str
    """The async class in `target`."""
    summary: str
    """The docstring of the module."""
    docstring: str | None = None
    """The docstring of the class; that of the sync class if None."""
    immediate: frozenset[str] = frozenset()
    """Methods that do not read the store before they return: they are called without a thread."""
    bodies: bool = True
    """Whether methods that `BODIES` has a function for call that."""
    calls: str | None = None
    """The class of `self._calls`, whose method `make` makes each call in a thread; `in_thread` does if None."""
    omitted: frozenset[str] = frozenset()
    """Public methods that only hosts use, or that the async class has by hand."""


FACADES = (
    Facade(
        source="hosts/client/sync_engine.py",
        sync="SyncEngine",
        target="hosts/client/engine_methods.py",
        name="EngineMethods",
        summary="The methods of `Engine`. Each calls the one of `SyncEngine` in a thread.",
        docstring="The methods of `Engine` that are those of `SyncEngine`.",
        immediate=frozenset(
            {"audit", "handle", "runs", "dead_letters", "check_upgrade", "schedule", "schedules", "workers"}
        ),
        omitted=frozenset({"acting_as", "in_namespace", "submit_update_with_start", "within"}),
    ),
    Facade(
        source="hosts/client/sync_run_handle.py",
        sync="SyncRunHandle",
        target="hosts/client/run_handle.py",
        name="RunHandle",
        summary="The handle to one run, for async code. Each method calls the one of `SyncRunHandle` in a thread.",
        omitted=frozenset({"log_reader", "published_reader", "submit_update", "row", "output"}),
    ),
    Facade(
        source="hosts/client/sync_schedule_handle.py",
        sync="SyncScheduleHandle",
        target="hosts/client/schedule_handle.py",
        name="ScheduleHandle",
        summary="The handle to one schedule, for async code. Each method calls `SyncScheduleHandle` in a thread.",
        bodies=False,
    ),
    Facade(
        source="hosts/client/sync_transactional_engine.py",
        sync="SyncTransactionalEngine",
        target="hosts/client/transactional_engine.py",
        name="TransactionalEngine",
        summary="The engine within a transaction of the application, for async code.",
        bodies=False,
        calls="TransactionCalls",
    ),
    Facade(
        source="hosts/client/sync_limits.py",
        sync="SyncLimits",
        target="hosts/client/limits.py",
        name="Limits",
        summary="Limits and queues, for async code. Each method calls `SyncLimits` in a thread.",
        docstring="The limits and queues of a namespace, for async code. `engine.limits` returns it.\n\n"
        "    A change holds at once, on all hosts and without a deploy, also for what waits already. It interrupts "
        "nothing.\n    ",
        bodies=False,
    ),
    Facade(
        source="hosts/client/sync_triggers.py",
        sync="SyncTriggers",
        target="hosts/client/triggers.py",
        name="Triggers",
        summary="Triggers, by which messages of topics start runs, for async code. Each method calls `SyncTriggers` in "
        "a thread.",
        docstring="The triggers of a namespace, for async code. `engine.triggers` returns it.",
        bodies=False,
    ),
    Facade(
        source="hosts/client/sync_keys.py",
        sync="SyncKeys",
        target="hosts/client/keys.py",
        name="Keys",
        summary="API keys of the server, for async code. Each method calls `SyncKeys` in a thread.",
        docstring="The API keys of the server, for async code. `engine.keys` returns it.\n\n"
        "    The keys belong to the store: each names the namespaces that it is valid in.\n    ",
        bodies=False,
    ),
    Facade(
        source="hosts/client/sync_namespaces.py",
        sync="SyncNamespaces",
        target="hosts/client/namespaces.py",
        name="Namespaces",
        summary="Namespaces, for async code. Each method calls `SyncNamespaces` in a thread.",
        docstring="The namespaces of a store, for async code. `engine.namespaces` returns it.\n\n"
        "    A namespace need not be created: any may be used. One that was created has a note, and may have quotas."
        "\n    ",
        immediate=frozenset({"list"}),
        bodies=False,
    ),
)


def main(arguments: list[str] | None = None) -> int:
    """Write the modules, or compare them. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a module is out of date")
    is_check = parser.parse_args(arguments).check
    outdated = 0
    for facade in FACADES:
        target = ROOT / facade.target
        text = generated(facade)
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        if is_check:
            print(f"{facade.target} is not what {facade.source} gives: run `python -m tools.async_facade`")
            outdated += 1
        else:
            target.write_text(text, encoding="utf-8")
    return int(outdated > 0)


def generated(facade: Facade) -> str:
    """Return the text of the module of an async class."""
    source = (ROOT / facade.source).read_text(encoding="utf-8")
    by_hand = {
        node.name
        for node in ast.parse((ROOT / BODIES).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return formatted(Module(facade, source, by_hand if facade.bodies else set()).text(), facade.target)


def formatted(text: str, path: str) -> str:
    """Return code as `make format` leaves it."""
    for command in (["check", "--select", "I", "--fix-only", "--quiet"], ["format", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", path, "-"],
            cwd=ROOT,
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = done.stdout
    return text


class Module:
    """A module to generate, and the source that it is generated from."""

    def __init__(self, facade: Facade, source: str, by_hand: set[str]) -> None:
        self.facade = facade
        self.source = source
        self.by_hand = by_hand
        self.tree = ast.parse(source)

    def text(self) -> str:
        """Return the code, not formatted yet."""
        facade = self.facade
        code = "\n".join(self._class())
        names = _names_in(code)
        variables = [line for name, line in self._type_variables() if name in names]
        return "\n".join(
            (
                f"# Generated from {facade.source} by `python -m tools.async_facade`. Do not edit.",
                f'"""{facade.summary}"""',
                *self._imports(names | _names_in("\n".join(variables))),
                *variables,
                code,
            )
        )

    def _class(self) -> Iterator[str]:
        facade = self.facade
        (sync,) = (
            node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == facade.sync
        )
        bases = ", ".join(map(ast.unparse, sync.bases))
        docstring = self._docstring(sync) if facade.docstring is None else f'"""{facade.docstring}"""'
        attributes = re.search(r"Attributes:\n((?: {8}\w+: .*\n)+)", docstring)
        yield f"class {facade.name}({bases}):" if bases else f"class {facade.name}:"
        yield f"    {docstring}\n"
        calls = "" if facade.calls is None else f", calls: {facade.calls}"
        yield f"    def __init__(self, sync: {ast.unparse(_applied(sync))}{calls}) -> None:"
        yield "        self._sync = sync"
        if calls:
            yield "        self._calls = calls"
        for name in re.findall(r"(\w+): ", attributes[1]) if attributes else ():
            yield f"        self.{name} = sync.{name}"
        for method in sync.body:
            if not isinstance(method, ast.FunctionDef) or method.name.startswith("_"):
                continue
            decorators = [ast.unparse(one) for one in method.decorator_list]
            if decorators == ["overload"]:
                start, end = method.lineno - 1, method.end_lineno
                yield "    @overload\n" + self._signature(method, self.source.splitlines()[start:end])
            elif not decorators and method.name not in facade.omitted:
                start, end = method.lineno - 1, method.body[0].lineno - 1
                yield self._signature(method, self.source.splitlines()[start:end])
                yield f"        {self._docstring(method)}"
                yield from (f"        {line}" for line in self._body(method))

    def _signature(self, method: ast.FunctionDef, lines: list[str]) -> str:
        parameters, _, returned = _async_words("\n".join(lines)).rpartition("->")
        is_plain = method.name in self.facade.immediate or (
            _is_iterator(method) and method.name in self.by_hand
        )
        if not is_plain:
            parameters = parameters.replace("def ", "async def ", 1)
        return f"{parameters}->" + re.sub(r"\bIterator\b", "AsyncIterator", returned)

    def _docstring(self, node: ast.FunctionDef | ast.ClassDef) -> str:
        text = ast.get_source_segment(self.source, node.body[0])
        if ast.get_docstring(node) is None or text is None:
            raise ValueError(f"{self.facade.source}:{node.lineno}: {node.name} has no docstring")
        return _async_docstring(text)

    def _body(self, method: ast.FunctionDef) -> Iterator[str]:
        name, given = method.name, _arguments(method)
        called = f"self._sync.{name}"
        if name in self.by_hand:
            found = f"async_bodies.{name}({', '.join(('self._sync', *given))})"
            yield f"return {found}" if _is_iterator(method) else f"return {_result(method, f'await {found}')}"
        elif name in self.facade.immediate:
            found = f"{called}({', '.join(given)})"
            is_iterator = _is_iterator(method)
            yield f"return iterate_in_thread({found})" if is_iterator else f"return {_result(method, found)}"
        else:
            yield from (f"{one} = list({one})" for one in _iterables(method))
            # A lambda and not `partial`, with which pyright loses the type variables of the method.
            call = f"lambda: {called}({', '.join(given)})" if given else called
            found = f"await {'in_thread' if self.facade.calls is None else 'self._calls.make'}({call})"
            if _is_iterator(method):
                yield f"found = {found}"
                yield "async for one in iterate_in_thread(found):"
                yield "    yield one"
            else:
                yield f"return {_result(method, found)}"

    def _imports(self, names: set[str]) -> Iterator[str]:
        places = dict(IMPORTS)
        places[self.facade.sync] = f"holdfast.{self.facade.source.removesuffix('.py').replace('/', '.')}"
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                places |= {one.name: node.module for one in node.names}
        places.pop(self.facade.name, None)
        for name in sorted(names & places.keys()):
            yield f"from {places[name]} import {name}"

    def _type_variables(self) -> Iterator[tuple[str, str]]:
        for node in self.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="TypeVar"))):
                    yield name, ast.unparse(node)
                case _:
                    pass


def _names_in(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def _applied(sync: ast.ClassDef) -> ast.expr:
    """Return the type of `self`: `SyncRunHandle[Out]`."""
    for base in sync.bases:
        match base:
            case ast.Subscript(value=ast.Name(id="Generic")):
                return ast.Subscript(ast.Name(sync.name), base.slice)
            case _:
                pass
    return ast.Name(sync.name)


def _is_iterator(method: ast.FunctionDef) -> bool:
    return method.returns is not None and ast.unparse(method.returns).startswith("Iterator[")


def _iterables(method: ast.FunctionDef) -> Iterator[str]:
    """Yield the arguments to read before the call: they may be generators, which belong to the caller's thread."""
    for one in method.args.posonlyargs:
        if one.annotation is not None and ast.unparse(one.annotation).startswith("Iterable["):
            yield one.arg


def _arguments(method: ast.FunctionDef) -> list[str]:
    """Return what a method passes on: all of its arguments, except `self`."""
    given = method.args
    rest = [f"**{given.kwarg.arg}"] if given.kwarg is not None else []
    return [
        *[one.arg for one in [*given.posonlyargs, *given.args][1:]],
        *[f"{one.arg}={one.arg}" for one in given.kwonlyargs],
        *rest,
    ]


def _result(method: ast.FunctionDef, found: str) -> str:
    """Return the expression of the result. A sync handle becomes an async one."""
    returned = "" if method.returns is None else ast.unparse(method.returns)
    if returned.startswith("SyncRunHandle["):
        return f"RunHandle({found})"
    if returned == "SyncScheduleHandle":
        return f"ScheduleHandle({found})"
    if returned.startswith("list[SyncRunHandle["):
        return f"[RunHandle(one) for one in {found}]"
    return found


def _async_words(text: str) -> str:
    return re.sub(r"\bSync(Engine|TransactionalEngine|RunHandle|ScheduleHandle)\b", r"\1", text).replace(
        "for synchronous code", "for async code"
    )


def _async_docstring(text: str) -> str:
    text = _async_words(text).replace("`engine.sync.within(", "`engine.within(")
    text = re.sub(r"`(run\.\w+\([^`]*\))(\.\w+)`", r"`(await \1)\2`", text)
    text = re.sub(r"`(run\.\w+\([^`]*\))`", r"`await \1`", text)
    # An async method does not block the loop.
    return re.sub(r"\n +BlockedLoopError: .*", "", text)


if __name__ == "__main__":
    sys.exit(main())
