"""pydantic's ValidationError, which only pydantic can make: what is kept of it, and how it is made again.

pydantic is optional, and slow to import. Whoever has such an error has imported it, so it is found in `sys.modules`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

_MODULE: Final = "pydantic_core"


def is_validation_error(error: BaseException) -> bool:
    """Whether pydantic has raised this."""
    core = _core()
    return core is not None and isinstance(error, core.ValidationError)


def _core() -> Any:
    return sys.modules.get(_MODULE)


def parts_of(error: BaseException) -> dict[str, object]:
    """Return what such an error says."""
    raised = cast("Any", error)
    return {"title": raised.title, "errors": raised.errors(include_url=False)}


def error_from(kind: type[BaseException], parts: Mapping[str, Any]) -> BaseException:
    """Return an error that says this. ImportError, or what pydantic raises, if it can't be made."""
    core = _core()
    if core is None or kind is not core.ValidationError:
        raise ImportError("pydantic is not loaded")
    lines = [_line(core, one) for one in cast("Sequence[Mapping[str, Any]]", parts["errors"])]
    return cast("BaseException", cast("Any", kind).from_exception_data(parts["title"], lines))


def _line(core: Any, error: Mapping[str, Any]) -> dict[str, object]:
    """Return a line as pydantic takes it: of its own type, if that says the same, else with the words that it had."""
    line: dict[str, object] = {"type": error["type"], "loc": tuple(error["loc"]), "input": error["input"]}
    if "ctx" in error:
        line["ctx"] = error["ctx"]
    try:
        again = core.ValidationError.from_exception_data("", [line]).errors(include_url=False)
        if again[0]["msg"] == error["msg"]:
            return line
    except Exception:  # noqa: BLE001, S110  # it is none of its own types, or of another version
        pass
    custom_type = core.PydanticCustomError(
        error["type"], "{holdfast_message}", {"holdfast_message": error["msg"]}
    )
    return {**line, "type": custom_type, "ctx": None} if "ctx" in line else {**line, "type": custom_type}
