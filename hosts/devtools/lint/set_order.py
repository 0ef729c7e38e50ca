"""Rule HF008: code that depends on the order of a set, which for strings differs in every process."""

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.hosts.devtools.lint.hits import CodeLocation, NodeFinding, written
from holdfast.hosts.devtools.lint.known_names import names_in
from holdfast.hosts.devtools.lint.name_resolution import Origins
from holdfast.hosts.devtools.lint.rules import SET_ORDER
from holdfast.hosts.devtools.lint.scopes import Annotated, Assigned

_IN_ORDER: Final = frozenset(
    {
        *names_in("builtins", "list tuple enumerate iter zip map filter str repr dict.fromkeys"),
        *("collections.deque", "functools.reduce", "asyncio.as_completed"),
        *names_in("itertools", "chain islice product permutations combinations batched cycle accumulate"),
        *names_in("itertools", "groupby starmap takewhile dropwhile"),
    }
)
"""Functions whose results show the order of their arguments."""
_ORDER_FREE: Final = frozenset(names_in("builtins", "sorted set frozenset sum min max any all len bool"))
_TASKS: Final = frozenset({"asyncio.create_task", "asyncio.ensure_future", "asyncio.Task", "asyncio.Future"})
_AS_COMPLETED: Final = "asyncio.as_completed"


class SetOrderRule:
    """The check for dependence on the order of a set."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._free: set[int] = set()

    def check(self, node: ast.AST, place: CodeLocation) -> Iterator[NodeFinding]:
        """Yield the findings at a node. Its parents were checked before."""
        match node:
            case ast.For() | ast.AsyncFor():
                yield from self._each(node.iter, place)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                if not self._is_free(node):
                    for generator in node.generators:
                        yield from self._each(generator.iter, place)
            case ast.Call():
                yield from self._call(node, place)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                yield from self._starred(parts, place)
            case ast.Assign(targets=[ast.Tuple() | ast.List()], value=value):
                yield from self._each(value, place)
            case ast.FormattedValue(value=value) if self._is_unordered(value, place):
                yield _hit(value, "formats a set in an order that differs between processes")
            case _:
                pass

    def _call(self, node: ast.Call, place: CodeLocation) -> Iterator[NodeFinding]:
        called = self._origins.of(node.func, place.module, place.scope)
        yield from self._starred(node.args, place)
        if called in _ORDER_FREE:
            self._free.update(id(one) for one in node.args)
        elif called in _IN_ORDER:
            for argument in node.args:
                if called == _AS_COMPLETED and self._is_set(argument, place):
                    yield _hit(argument, "passes a set to asyncio.as_completed, which refuses it")
                else:
                    yield from self._each(argument, place)
        elif isinstance(node.func, ast.Attribute):
            of_what = node.func.value
            if node.func.attr == "pop" and not node.args and self._is_unordered(of_what, place):
                yield _hit(of_what, f"takes an arbitrary item of `{written(of_what)}`, which is a set")
            if node.func.attr == "join" and isinstance(of_what, ast.Constant):
                for argument in node.args:
                    yield from self._each(argument, place)

    def _starred(self, parts: Sequence[ast.expr], place: CodeLocation) -> Iterator[NodeFinding]:
        for part in parts:
            if isinstance(part, ast.Starred):
                yield from self._each(part.value, place)

    def _each(self, node: ast.expr, place: CodeLocation) -> Iterator[NodeFinding]:
        if self._is_unordered(node, place):
            name = written(node)
            what = "a set" if name == "(...)" else f"`{name}`, which is a set"
            yield _hit(node, f"iterates over {what}, in an order that differs between processes")

    def _is_free(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> bool:
        """Return whether the result of a comprehension does not show the order of the set."""
        if id(node) not in self._free and not isinstance(node, ast.SetComp):
            return False
        return not any(isinstance(one, ast.Await) for one in ast.walk(node))

    def _is_set(self, node: ast.expr, place: CodeLocation) -> bool:
        return self._origins.is_set(self._origins.of(node, place.module, place.scope))

    def _is_unordered(self, node: ast.expr, place: CodeLocation) -> bool:
        return self._is_set(node, place) and not self._holds_tasks(node, place)

    # Sets of tasks have an order -------------------------------------------------------------------------------------

    def _holds_tasks(self, node: ast.expr, place: CodeLocation) -> bool:
        """Return whether a set holds only tasks. These hash by a sequence number, so that their order is repeatable."""
        match node:
            case ast.Set(elts=parts):
                return all(self._is_task(one, place) for one in parts)
            case ast.SetComp(elt=element):
                return self._is_task(element, place)
            case ast.Name(id=name):
                where = place.scope.where(name)
                bindings = [] if where is None else where.names[name]
                return bool(bindings) and all(self._binds_tasks(one, name, place) for one in bindings)
            case _:
                return False

    def _binds_tasks(self, binding: object, name: str, place: CodeLocation) -> bool:
        match binding:
            case Annotated(annotation=ast.Subscript(slice=inner)):
                origin = self._origins.of_type(inner, place.module, place.scope)
                return origin is not None and origin.removesuffix("()") in _TASKS
            case Assigned(value=ast.Call(args=[])):  # set()
                added = place.module.added_to(name)
                return bool(added) and all(self._is_task(one, place) for one in added)
            case Assigned(value=ast.Set() | ast.SetComp() as value):
                return self._holds_tasks(value, place)
            case _:
                return False

    def _is_task(self, node: ast.expr, place: CodeLocation) -> bool:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "create_task"
        ):
            return True
        origin = self._origins.of(node, place.module, place.scope)
        if origin is None:
            return isinstance(node, ast.Name) and self._is_made_task(node.id, place)
        return origin.removesuffix("()") in _TASKS or origin.endswith(".create_task()")

    def _is_made_task(self, name: str, place: CodeLocation) -> bool:
        """Return whether every value assigned to a name is a task."""
        where = place.scope.where(name)
        bindings = [] if where is None else where.names[name]
        values = [one.value for one in bindings if isinstance(one, Assigned)]
        return (
            len(values) == len(bindings) > 0
            and all(isinstance(one, ast.Call) for one in values)
            and all(self._is_task(one, place) for one in values)
        )


def _hit(node: ast.expr, text: str) -> NodeFinding:
    return NodeFinding(node, SET_ORDER, text)
