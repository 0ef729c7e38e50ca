"""Finds the channels and updates of a durable function, by inspecting its code without running it.

Follows references from the function to the functions, classes and objects that it names. Nothing is called.
"""

import inspect
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from dis import get_instructions
from functools import partial
from gc import get_referents
from itertools import islice
from sys import stdlib_module_names
from types import CodeType, FunctionType, MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, Final, cast

import attrs

from holdfast.hosts.wiring.step_discovery import codes_within
from holdfast.kernel.authoring.channels import Channel, Inbox
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.queries import AnyUpdate, Query, Update, updates_in

_OURS: Final = ("holdfast.adapters.", "holdfast.hosts.", "holdfast.kernel.", "holdfast.ports.")
_OBJECTS_MAX: Final = 2_000
"""The maximum number of objects inspected; beyond it the result is incomplete."""
_HIDES: Final = frozenset(
    {"__import__", "eval", "exec", "getattr", "globals", "import_module", "locals", "vars"}
)
"""Builtins through which code can reach objects that it does not name."""
_HOLDERS: Final = (Mapping, Sequence, AbstractSet, partial, SimpleNamespace, Workflow, Query, Update)
"""Types of the standard library and of Holdfast that may hold objects of the application."""
_BUILT_IN: Final[tuple[type, ...]] = (dict, list, tuple, set, frozenset, deque, MappingProxyType)
"""Containers whose elements are found without calling methods, which a class of the application may have replaced."""


@attrs.frozen
class ReachableChannels:
    """The channels that a durable function receives from, and the updates of objects that it may expose."""

    by_name: dict[str, tuple[Inbox[object], ...]]
    """By the name of the channel. Several channels may share a name."""
    is_complete: bool
    """Whether these channels are certainly all: False if the function may create some or get them from outside."""
    updates: Mapping[str, tuple[AnyUpdate, ...]]
    """Updates by all their names, such as `Board.move`. Several classes may share a name.

    Not all: a class that the function defines itself, or gets as an argument, is not found.
    """


def channels_of(function: Callable[..., object]) -> ReachableChannels:
    """Return the channels and updates that a function names, directly or through the code that it names."""
    search = _Search(str(getattr(function, "__module__", "")))
    search.add(function)
    search.run()
    by_name: dict[str, tuple[Inbox[object], ...]] = {}
    for channel in search.channels:
        by_name[channel.name] = (*by_name.get(channel.name, ()), channel)
    updates: dict[str, tuple[AnyUpdate, ...]] = {}
    for kind in search.classes:
        for name, one in updates_in(kind):
            if one not in updates.get(name, ()):
                updates[name] = (*updates.get(name, ()), one)
    return ReachableChannels(by_name, search.is_complete, updates)


class _Search:
    """Walks the objects reachable from a function. `home` is its module, which is inspected whatever its name."""

    def __init__(self, home: str) -> None:
        self._home = home
        self.channels: list[Inbox[object]] = []
        self.classes: list[type[object]] = []
        self.is_complete = True
        self._seen: set[int] = set()
        self._left: list[object] = []

    def run(self) -> None:
        while self._left:
            one = self._left.pop()
            for found in self._referred(one):
                self.add(found)

    def add(self, found: object) -> None:
        if isinstance(found, Inbox):
            channel = cast("Inbox[object]", found)
            if id(channel) not in self._seen:
                self._seen.add(id(channel))
                self.channels.append(channel)
        elif found is Channel or found is Inbox or isinstance(found, ContextVar):
            self.is_complete = False  # the function may create channels at run time, or get them from outside
        elif inspect.ismethod(found):
            self.add(found.__self__)
            self.add(found.__func__)
        elif id(found) in self._seen or _is_foreign(found, self._home):
            pass
        elif len(self._seen) >= _OBJECTS_MAX:
            self.is_complete = False
        else:
            self._seen.add(id(found))
            self._left.append(found)
            if isinstance(found, type):
                self.classes.append(cast("type[object]", found))

    def _referred(self, one: object) -> Iterator[object]:
        """Yield the objects that an object refers to."""
        if isinstance(one, FunctionType):
            yield from self._named(one)
        elif isinstance(one, staticmethod | classmethod):
            yield cast("Callable[..., object]", cast("Any", one).__func__)
        elif isinstance(one, property):
            yield from (one.fget, one.fset)
        elif isinstance(one, type):
            for kind in one.__mro__[:-1]:
                yield from vars(kind).values()
        elif isinstance(one, Workflow):
            yield one.function  # the run may continue as this workflow, which then gets the unread messages
        elif isinstance(one, Query | Update):
            yield one.method
        elif isinstance(one, partial):
            yield from (one.func, *one.args, *one.keywords.values())
        elif isinstance(one, _BUILT_IN):
            yield from islice(get_referents(one), _OBJECTS_MAX)
        elif not isinstance(one, ModuleType):
            # To iterate over a container of the application would run its code.
            self.is_complete &= not isinstance(one, Mapping | Sequence | AbstractSet)
            yield type(one)
            yield from cast("dict[str, object]", getattr(one, "__dict__", {})).values()
            slots = (name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()))
            yield from (inspect.getattr_static(one, name, None) for name in slots if name != "__dict__")

    def _named(self, function: FunctionType) -> Iterator[object]:
        """Yield the objects that a function names, including attributes of modules."""
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            yield wrapped
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        for cell in function.__closure__ or ():
            try:
                yield cast("object", cell.cell_contents)
            except ValueError:  # the cell is empty: the variable is not assigned yet
                self.is_complete = False
        names = [name for code in codes_within(function.__code__) for name in code.co_names]
        modules: list[ModuleType] = []
        for name in names:
            if name in _HIDES:
                self.is_complete = False
            found = cast("object", function.__globals__.get(name))
            if isinstance(found, ModuleType):
                modules.append(found)
            elif found is not None:
                yield found
        for module in modules:
            if not _is_foreign(module, self._home):
                for name in names:
                    found = cast("object", vars(module).get(name))
                    if isinstance(found, ModuleType):
                        modules += [found] if found not in modules else []
                    elif found is not None:
                        yield found
            elif module.__name__ in {"holdfast", "holdfast.kernel.authoring.channels"} and "Channel" in names:
                self.is_complete = False
        if any(_imports(code) for code in codes_within(function.__code__)):
            self.is_complete = False


def _imports(code: CodeType) -> bool:
    return any(one.opname == "IMPORT_NAME" for one in get_instructions(code))


def _is_foreign(found: object, home: str) -> bool:
    """Whether an object belongs to Python or Holdfast, or is plain data, and so leads to no channel."""
    if found is None or isinstance(found, str | bytes | int | float | complex | range | type(Ellipsis)):
        return True
    if isinstance(found, ModuleType):
        name = found.__name__
    elif isinstance(found, FunctionType | type):
        name = str(getattr(found, "__module__", ""))
    elif isinstance(found, _HOLDERS):
        return False
    else:
        name = type(found).__module__
    if name == home:
        return False
    return name == "holdfast" or name.startswith(_OURS) or name.partition(".")[0] in stdlib_module_names
