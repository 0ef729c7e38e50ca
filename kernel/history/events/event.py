"""The base class of history events, and their conversion to and from history rows.

An event is what one history row says: `type` names its class, and the row's `data` holds its fields as JSON. A field
that has its default is left out of the row, so a new field with a default changes no row that is stored. A field that
this version does not know is ignored, so an older version can read rows of a newer one.

The other columns of a row say where the event belongs: its run and number, the stage or call (`node`), the map item,
and the epoch of the attempt. A value, such as a result, is the row's `payload`: it may be large, and is then in a blob
store.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, TypeAlias, Union, cast, get_args, get_origin

import attrs
import cattrs
from cattrs import gen
from cattrs.fns import identity
from typing_extensions import override

from holdfast.kernel.converters import strict_converter
from holdfast.kernel.history.raised import Raised
from holdfast.ports.actors import Actor
from holdfast.ports.errors import InvalidCommandError, UnreadableRowError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.structs import frozen

Facts: TypeAlias = Mapping[str, object]
"""The parsed `data` of a history row."""
Identity: TypeAlias = tuple[str, str, int]
"""The type of an event, the call or row that it is about, and the number of the attempt."""

CallKind: TypeAlias = Literal["step", "timer", "run", "message", "channel", "topic"]
"""What a call is: of a step, a timer, a child run, a message to a run, a channel's close, or of a topic."""


@frozen(kw_only=True)
class HistoryEvent:
    """An event in the history of a run. Each type of event is a subclass."""

    type: ClassVar[str]
    """The type of its history rows."""
    json_names: ClassVar[Mapping[str, str]] = {}
    """Fields that have another name in the row's data."""
    payload: ClassVar[str | None] = None
    """What the payload of its rows is; None: they have none."""
    ends_run: ClassVar[bool] = False
    """Whether it is the last event of a generation of a run, apart from cancellations of external work."""
    cancels_work: ClassVar[bool] = False
    """Whether it is the outcome of cancelling abandoned external work. It may follow the end of the run."""
    ends_attempt: ClassVar[bool] = False
    """Whether it ends an attempt of a stage or map item."""
    ends_step: ClassVar[bool] = False
    """Whether it ends a step. A queued step then has no job any more."""
    call_kind: ClassVar[CallKind | None] = None
    """The kind of call that it records; None: it is not about a call of a durable function."""
    may_precede_code: ClassVar[bool] = False
    """Whether it may be stored before a durable function has run for the first time."""
    reaches_function: ClassVar[bool] = False
    """Whether a durable function receives it. Others, such as pauses, do not concern the function's code."""
    answers_update: ClassVar[bool] = False
    """Whether it ends an update: with its result, its error, or why it was not carried out."""
    requested_by_code: ClassVar[bool] = False
    """Whether it exists only because the code of a durable function requested something; see `was_requested`."""
    hidden: ClassVar[frozenset[str]] = frozenset()
    """Fields that are left out of what is shown to people and sent to sinks."""
    read_first: ClassVar[bool] = False
    """Whether a replay must know it before it feeds earlier rows: it records how the function was answered then."""
    recorded_first: ClassVar[bool] = False
    """Whether a driver records it before it starts anything new, because the function relies on it already."""

    @classmethod
    def was_requested(cls, facts: Facts) -> bool:
        """Return whether a row with this data exists only because the code of a durable function requested something.

        It takes the data, because a replay of a long history makes no event of most rows.
        """
        return cls.requested_by_code

    @property
    def identity(self) -> Identity:
        """What a driver records once: two events with the same identity record the same thing."""
        return self.type, "", 1

    @property
    def facts(self) -> dict[str, object]:
        """The fields for the row's `data`, without those that have their default."""
        cls: Any = type(self)
        return _fact_maker(cls)(self)

    @property
    def data(self) -> str | None:
        """The row's `data`: the fields as canonical JSON; None if all have their defaults."""
        facts = self.facts
        return canonical(facts) if facts else None

    @classmethod
    def from_facts(cls, facts: Facts) -> Self:
        """Return the event with these fields. Raises ValueError, TypeError or KeyError if they are not valid."""
        return _converter().structure(facts, cls)

    @classmethod
    def from_row(cls, row: HistoryRow, facts: Facts | None = None) -> Self:
        """Return the event of a row of this type. UnreadableRowError if its data is damaged.

        `facts` is its data, if that is parsed already.
        """
        try:
            return cls.from_facts(facts_of(row) if facts is None else facts)
        except Exception as error:  # cattrs raises whatever a field's hook raises
            wrong = f"the field {error} is missing" if isinstance(error, KeyError) else error
            why = f"row {row.number} is not a valid {row.type}: {wrong}"
            raise UnreadableRowError("holdfast_history", row.run, "data", why) from error


@frozen(kw_only=True)
class OperatorEvent(HistoryEvent):
    """An event that a command of an operator may cause. `kernel.rules.actors` stores the actor of the command."""

    actor: Actor | None = None
    """Who issued the command that caused it; None: unknown, or the system or the code caused it."""


@frozen(kw_only=True)
class CallEvent(HistoryEvent):
    """An event about a call that the code of a durable function made."""

    call: str
    """The call of the function, such as `3.1`."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, self.call, 1


@frozen(kw_only=True)
class LocatedCallEvent(CallEvent):
    """An event about a call, with the place of the call in the code."""

    site: str = ""
    """File and line of the call."""


def facts_of(row: HistoryRow) -> Facts:
    """Return what a row's data holds, with fields that this version does not know: to show it as it is stored.

    Raises ValueError or TypeError if it is not a JSON object.
    """
    return _structure_object(parse(row.data), row) if row.data else {}


@frozen(kw_only=True)
class RecordedError:
    """An error as an event records it."""

    type: str
    """The class of the exception; "" if there was none."""
    message: str
    """The text of the error."""
    code: str
    """The code of the error, such as `body_error`."""
    arguments: str | None = None
    """JSON text of the exception's arguments, from which it can be made again."""
    traceback: str | None = None
    """The traceback of the exception."""

    @property
    def text(self) -> str:
        """The error as canonical JSON, without fields that have their default."""
        return canonical(_converter().unstructure(self))

    @property
    def raised(self) -> Raised:
        """The exception, to be raised again."""
        return Raised(type=self.type, message=self.message, arguments=self.arguments, code=self.code)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the error of a JSON text. InvalidCommandError if it has not the form of one."""
        try:
            return _converter().structure(parse(text), cls)
        except Exception as error:  # cattrs raises whatever a hook raises
            raise InvalidCommandError(
                f"an error is a JSON object with its type, message and code, not {text:.80}: {error}"
            ) from error


@cache
def _fact_maker(cls: Any) -> Callable[[HistoryEvent], dict[str, object]]:
    """Return the function that makes the facts of the events of a class."""
    return _converter().get_unstructure_hook(cls)


@cache
def _converter() -> cattrs.Converter:
    """Return the converter of events."""
    converter = strict_converter(forbid_extra_keys=False, detailed_validation=False)
    converter.register_structure_hook_func(_is_mapping, _structure_object)
    converter.register_unstructure_hook_func(_is_mapping, identity)
    converter.register_unstructure_hook_func(_is_plain, identity)  # by default a call for each field
    converter.register_structure_hook(Actor, lambda data, _: Actor.of(data))
    converter.register_unstructure_hook(Actor, lambda actor: actor.data)

    def structure(cls: Any) -> Any:
        return gen.make_dict_structure_fn(cls, converter, **_renames(cls))

    def unstructure(cls: Any) -> Any:
        return gen.make_dict_unstructure_fn(cls, converter, _cattrs_omit_if_default=True, **_renames(cls))

    converter.register_structure_hook_factory(attrs.has, structure)
    converter.register_unstructure_hook_factory(attrs.has, unstructure)
    return converter


def _renames(cls: type[Any]) -> dict[str, Any]:
    names: Mapping[str, str] = getattr(cls, "json_names", {})
    return {field: gen.override(rename=name) for field, name in names.items()}


def _is_mapping(kind: Any) -> bool:
    return get_origin(kind) is Mapping


def _structure_object(value: object, _: object) -> Facts:
    if not isinstance(value, dict):
        raise TypeError(f"expected a JSON object, got {value!r:.80}")
    return cast("dict[str, object]", value)


def _is_plain(kind: Any) -> bool:
    """Return whether values of a type are JSON as they are: a text, a number or a truth value, or none."""
    return get_origin(kind) in (Union, UnionType) and {*get_args(kind)} <= {str, int, float, bool, NoneType}
