"""Types of stage bodies, read from their annotations, and the check whether one type fits another."""

import inspect
from collections import abc
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Union, cast

import attrs

from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.type_hints import hints_of, signature_of
from holdfast.kernel.values import check_type
from holdfast.kernel.values.type_forms import (
    Form,
    arguments,
    is_class_with_fields,
    is_literal,
    is_typed_dict,
    item_of,
    members,
    origin_of,
    tuple_items,
    unwrap,
)
from holdfast.ports.errors import DefinitionError

_SEQUENCES: Final = frozenset({abc.Sequence, abc.MutableSequence})
_MAPPINGS: Final[frozenset[object]] = frozenset({dict, abc.Mapping, abc.MutableMapping})
_STORED_APART: Final = frozenset({bool, datetime})
"""Subclasses that are not stored like their parents: True is not 1, and a datetime is not a date."""

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@attrs.frozen(kw_only=True)
class Shape:
    """The parameters and the return type of a body."""

    takes_context: bool
    """Whether the first parameter is a `StageContext`."""
    config_type: Form
    """Type of the context's config; None if it has none."""
    values: int
    """Number of value parameters. One takes the whole input; several take the items of a tuple."""
    input_type: Form
    """Type of the value parameter; `tuple[...]` of several, `object` without any."""
    output_type: Form
    """Return type; of an async body, when awaited."""


def is_async_body(body: Callable[..., object]) -> bool:
    """Return whether a body is called on the event loop, because calling it returns an awaitable.

    A decorated body counts as what its decorator returned, which may differ from the function inside. A body that is
    not async by its definition is called in a thread; if it returns an awaitable all the same, that is awaited.
    """
    return inspect.iscoroutinefunction(body) or (
        not inspect.isroutine(body) and inspect.iscoroutinefunction(getattr(type(body), "__call__", None))  # noqa: B004
    )


def is_generator(body: Callable[..., object]) -> bool:
    """Return whether a body is a sync or async generator."""
    called = body if inspect.isroutine(body) else getattr(type(body), "__call__", body)  # noqa: B004
    kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_kind(one) for is_kind in kinds for one in (body, called))


def read_shape(
    body: Callable[..., object], name: str, *, unwrap_output: Callable[[Form], Form] | None = None
) -> Shape:
    """Read the shape of a body. `unwrap_output` turns its return annotation into the output type of the stage.

    Raises:
        DefinitionError: An annotation is missing or can't be evaluated, values of its type can't be stored, or an
            engine could not call a body with these parameters.
    """
    where = f"stage {name!r}"
    if is_generator(body):
        raise DefinitionError(f"{where} is a generator; return all its values in a list")
    parameters = list(signature_of(body, where).parameters.values())
    hints = _hints(body, parameters, where)
    first = hints.get(parameters[0].name) if parameters else None
    if first is Any:
        raise DefinitionError(
            f"{where}: parameter {parameters[0].name!r} is Any, which may be the context as well; write `object`"
        )
    takes_context = origin_of(first) is StageContext
    values = _values(parameters[1:] if takes_context else parameters, hints, where)
    shape = Shape(
        takes_context=takes_context,
        config_type=_config_type(first) if takes_context else None,
        values=len(values),
        input_type=object if not values else values[0] if len(values) == 1 else tuple_of(values),
        output_type=hints["return"] if unwrap_output is None else unwrap_output(hints["return"]),
    )
    check_storable(shape.input_type, f"{where} takes a type that can't be stored")
    check_storable(shape.output_type, f"{where} returns a type that can't be stored")
    check_storable(shape.config_type, f"{where} has a config that can't be stored")
    return shape


def fits(given: Form, wanted: Form) -> bool:
    """Return whether values stored as `given` can be read as `wanted`. What a type leaves open fits.

    This is stricter than type checkers: a bool is not stored as an int, nor a subclass as its parent.
    """
    given, wanted = unwrap(given), unwrap(wanted)
    if given is Any or wanted is Any or wanted is object or given == wanted:
        return True
    if len(givens := members(given)) > 1:
        return all(fits(each, wanted) for each in givens)
    if len(wanteds := members(wanted)) > 1:
        return any(fits(given, each) for each in wanteds)
    if is_literal(given):
        return _literal_fits(given, wanted)
    source, target = origin_of(given), origin_of(wanted)
    if source is int and target is float:
        return True
    if is_typed_dict(given):
        return source is target or (
            target in _MAPPINGS and fits(object, (arguments(wanted) or (str, object))[1])
        )
    if is_typed_dict(wanted) or not isinstance(source, type) or not isinstance(target, type):
        return False
    if source in _STORED_APART or is_class_with_fields(given):
        return source is target and _arguments_fit(given, wanted)
    if target in _SEQUENCES and issubclass(source, str | bytes):
        return False
    return issubclass(source, target) and _arguments_fit(given, wanted)


def tuple_of(items: abc.Sequence[Form]) -> Form:
    """Return the type `tuple[...]` of these items."""
    return cast("Any", tuple)[tuple(items)]


def union_of(either: abc.Sequence[Form]) -> Form:
    """Return the union of these types, without those that fit another one."""
    distinct: list[Form] = []
    for form in either:
        if not any(fits(form, known) for known in distinct):
            distinct = [known for known in distinct if not fits(known, form)]
            distinct.append(form)
    return distinct[0] if len(distinct) == 1 else cast("Any", Union)[tuple(distinct)]


def list_of(item: Form) -> Form:
    """Return the type `list[item]`."""
    return cast("Any", list)[item]


def sequence_of(item: Form) -> Form:
    """Return the type `Sequence[item]`."""
    return cast("Any", abc.Sequence)[item]


def _literal_fits(given: Form, wanted: Form) -> bool:
    if is_literal(wanted):
        possible = {(type(value), value) for value in arguments(wanted)}
        return all((type(value), value) in possible for value in arguments(given))
    return all(fits(type(value), wanted) for value in arguments(given))


def _arguments_fit(given: Form, wanted: Form) -> bool:
    if origin_of(wanted) is tuple:
        sources, any_number = tuple_items(given)
        targets, any_wanted = tuple_items(wanted)
        if any_wanted:
            return all(fits(each, targets[0]) for each in sources)
        return not any_number and len(sources) == len(targets) and all(map(fits, sources, targets))
    if isinstance(origin := origin_of(given), type) and issubclass(origin, tuple):
        return all(fits(each, item_of(wanted)) for each in tuple_items(given)[0])
    sources, targets = arguments(given), arguments(wanted)
    if not sources or not targets:
        return True  # a bare `list` may hold anything
    return len(sources) == len(targets) and all(map(fits, sources, targets))


def _hints(
    body: Callable[..., object], parameters: abc.Sequence[inspect.Parameter], where: str
) -> abc.Mapping[str, Form]:
    hints = hints_of(body, where, "stage")
    for parameter in parameters:
        if parameter.name not in hints and parameter.kind in _POSITIONAL:
            raise DefinitionError(
                f"{where}: parameter {parameter.name!r} has no annotation; {_advice(parameter.name)}"
            )
    if "return" not in hints:
        raise DefinitionError(f"{where} has no return annotation; write `-> str`, or `-> None` for nothing")
    return hints


def _advice(parameter: str) -> str:
    if parameter in ("self", "cls"):
        return "a stage is a function, or a method of an object: `resize = stage(images.resize)`"
    kind = "StageContext" if parameter in ("ctx", "context") else "str"
    return f"annotate it, as in `{parameter}: {kind}`"


def _values(
    parameters: abc.Sequence[inspect.Parameter], hints: abc.Mapping[str, Form], where: str
) -> list[Form]:
    """Return the types of the value parameters."""
    taken: list[Form] = []
    defaults: list[str] = []
    for parameter in parameters:
        has_default = parameter.default is not parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise DefinitionError(
                f"{where}: *{parameter.name} is not filled by an engine; name each parameter"
            )
        if parameter.kind is parameter.KEYWORD_ONLY and not has_default:
            raise DefinitionError(
                f"{where}: the engine does not fill {parameter.name!r}; give it a default, or move it before `*`"
            )
        if parameter.kind not in _POSITIONAL:
            continue
        if origin_of(hints[parameter.name]) is StageContext:
            raise DefinitionError(f"{where}: the context {parameter.name!r} must be its first parameter")
        if has_default:
            defaults.append(parameter.name)
        else:
            taken.append(hints[parameter.name])
    if defaults and len(taken) != 1:
        raise DefinitionError(
            f"{where}: it is not clear whether {defaults[0]!r} should be filled; move what has a default after `*`"
        )
    return taken


def _config_type(context: Form) -> Form:
    config = (arguments(context) or (None,))[0]
    return None if unwrap(config) is type(None) else config


def check_storable(form: Form, where: str) -> None:
    """Raise DefinitionError, which begins with `where`, if values of this type can't be stored."""
    try:
        check_type(form)
    except DefinitionError as error:
        raise DefinitionError(f"{where}: {error}") from None
