"""Stored form of pydantic's ValidationError, which only pydantic can construct.

pydantic is optional and slow to import. A program that has such an error has imported it, so it is looked up in
`sys.modules`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

_MODULE: Final = "pydantic_core"


def is_validation_error(error: BaseException) -> bool:
    """Whether an error is a pydantic ValidationError."""
    core = _core()
    return core is not None and isinstance(error, core.ValidationError)


def _core() -> Any:
    return sys.modules.get(_MODULE)


def parts_of(error: BaseException) -> dict[str, object]:
    """Return the title and the lines of a ValidationError."""
    raised = cast("Any", error)
    return {"title": raised.title, "errors": raised.errors(include_url=False)}


def error_from(kind: type[BaseException], parts: Mapping[str, Any]) -> BaseException:
    """Return the ValidationError with these parts. ImportError without pydantic; else whatever pydantic raises."""
    core = _core()
    if core is None or kind is not core.ValidationError:
        raise ImportError("pydantic is not loaded")
    lines = [_line(core, one) for one in cast("Sequence[Mapping[str, Any]]", parts["errors"])]
    return cast("BaseException", cast("Any", kind).from_exception_data(parts["title"], lines))


def _line(core: Any, error: Mapping[str, Any]) -> dict[str, object]:
    """Return a line for pydantic's constructor: of its own type if the message is then the same, else custom."""
    line: dict[str, object] = {"type": error["type"], "loc": tuple(error["loc"]), "input": error["input"]}
    if "ctx" in error:
        line["ctx"] = error["ctx"]
    try:
        again = core.ValidationError.from_exception_data("", [line]).errors(include_url=False)
        if again[0]["msg"] == error["msg"]:
            return line
    except Exception:  # noqa: BLE001, S110  # a custom type, or one of another version of pydantic
        pass
    custom_type = core.PydanticCustomError(
        error["type"], "{holdfast_message}", {"holdfast_message": error["msg"]}
    )
    return {**line, "type": custom_type, "ctx": None} if "ctx" in line else {**line, "type": custom_type}
