"""Write golden histories of durable functions: `python -m tests.golden.functions`, from the root of the repository.

As with golden recordings, one that is there is never written again: a run that was begun with this release, on any
Python, is replayed by all that come, on every other Python.
"""

import json
import platform
from pathlib import Path
from typing import Any, Final

import attrs

from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.functions.protocol import (
    Cancelling,
    ChildRequest,
    CloseRequest,
    Ended,
    FunctionContinued,
    FunctionEvent,
    FunctionFailed,
    FunctionReturned,
    NotifyRequest,
    PublishRequest,
    Request,
    Row,
    SignalReceived,
    StepCompleted,
    StepFailed,
    StepRequest,
    SubscribeRequest,
    TimerFired,
    TimerRequest,
    UpdateRequest,
)
from holdfast.kernel.history.raised import Raised
from holdfast.ports.json import canonical, parse
from tests.unit.kernel.functions.corpus import CORPUS, WHEN_SENT
from tests.unit.kernel.functions.player import Played, play

FOLDER: Final = Path(__file__).parent / "functions"
_EVENTS: Final = {
    one.__name__: one for one in (StepCompleted, StepFailed, TimerFired, SignalReceived, Cancelling)
}


def main() -> None:
    """Write those that are not there."""
    FOLDER.mkdir(exist_ok=True)
    for name, (call, then) in plays().items():
        path = FOLDER / f"{name}.json"
        if not path.exists():
            seed = int(name.rpartition("-")[2])
            text = json.dumps(to_data(play(call, seed=seed, then=then)), indent=1)
            path.write_text(text + "\n", encoding="utf-8")
            print(path)


def plays() -> dict[str, tuple[Call[Any], list[tuple[float, FunctionEvent]]]]:
    """Return what golden histories are of, by name: a call, and what it is told from outside."""
    alone: dict[str, tuple[Call[Any], list[tuple[float, FunctionEvent]]]] = {
        f"{call.definition.name}-{number:02}": (call, []) for number, call in enumerate(CORPUS)
    }
    sent = {
        f"{call.definition.name}-sent-{number:02}": (call, then)
        for number, (call, then) in enumerate(WHEN_SENT)
    }
    return {**alone, **sent}


def to_data(played: Played) -> dict[str, object]:
    """Return what is kept of a run that was played."""
    return {
        "python": platform.python_version(),
        "rows": [
            {"at": row.at, "kind": type(row.event).__name__, "told": attrs.asdict(row.event)}
            for row in played.rows
        ],
        "waited": [[asked_data(one) for one in waited] for waited in played.waited],
        "ended": ended_text(played.ended),
        **({"patches": played.patches} if any(played.patches) else {}),
    }


def asked_data(asked: Request) -> list[object]:
    """Return what must never change of what was asked for."""
    match asked:
        case StepRequest():
            return [asked.call, asked.step, _text(asked.arguments)]
        case TimerRequest():
            return [asked.call, asked.at]
        case ChildRequest():
            given = _text(asked.input)
            return [asked.call, asked.workflow, asked.version, given, asked.run, asked.parent_end]
        case NotifyRequest():
            return [asked.call, asked.run, asked.channel, asked.text]
        case UpdateRequest():
            return [asked.call, asked.run, asked.update, _text(asked.text)]
        case CloseRequest():
            return [asked.call, asked.channel]
        case PublishRequest():
            return [asked.call, asked.topic, _text(asked.text), dict(asked.attributes), asked.id]
        case SubscribeRequest(selection=selection):
            return [asked.call, asked.channel, None if selection is None else dict(selection), asked.since]


def ended_text(ended: Ended | None) -> str:
    """Return how a function has ended, in words."""
    match ended:
        case FunctionReturned(output):
            return f"returned {_text(output)}"
        case FunctionFailed(error):
            return f"raised {type(error).__name__}({', '.join(map(repr, error.args))})"
        case FunctionContinued(workflow=name, input=given):
            return f"goes on as {name} with {_text(given)}"
        case None:
            return "waits"


def _text(text: str) -> str:
    """Return the text of a value as it is compared: the order of keys says nothing of what was asked for."""
    return canonical(parse(text))


def rows_from(data: dict[str, Any]) -> list[Row]:
    """Return the rows of what `to_data` gave."""
    return [
        Row(number=number, at=row["at"], event=_event_from(row["kind"], row["told"]))
        for number, row in enumerate(data["rows"], 1)
    ]


def _event_from(kind: str, fields: dict[str, Any]) -> FunctionEvent:
    if kind == StepFailed.__name__:
        fields = {**fields, "error": Raised(**fields["error"])}
    return _EVENTS[kind](**fields)


if __name__ == "__main__":
    main()
