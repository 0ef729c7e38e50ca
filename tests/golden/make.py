"""Write golden recordings: `python -m tests.golden.make`, from the root of the repository.

A golden recording is never edited and never written again: whatever becomes of the kernel, it must make the recorded
decision of the recorded state for ever, because somewhere a run is in that state. Where a decision changes on purpose,
the change needs a way to tell old runs from new ones, and a new recording beside the old one.
"""

import json
from pathlib import Path
from typing import Any, Final

from holdfast.kernel.dispatch.decision_records import Recording
from tests.golden.scenario import play

FOLDER: Final = Path(__file__).parent / "decisions"


def main() -> None:
    """Write those that are not there: of each command and outcome, the decision that stores the most."""
    largest: dict[str, Recording] = {}
    for recording in play():
        name = _name(recording)
        if name not in largest or len(recording.decision) > len(largest[name].decision):
            largest[name] = recording
    for name, recording in sorted(largest.items()):
        path = FOLDER / f"{name}-1.json"
        if not path.exists():
            path.write_text(recording.to_json() + "\n", encoding="utf-8")
            print(path)


def _name(recording: Recording) -> str:
    """Return `job.settle-failed-fenced`, `job.settle-completed-next` and the like."""
    command, reply = json.loads(recording.command), json.loads(recording.decision)["reply"]
    outcome: str = command.get("outcome", {}).get("kind", "")
    fenced = "fenced" if reply.get("status") == "fenced" else ""
    taken = "next" if reply.get("next") else ""
    limited = "limited" if json.loads(recording.state).get("quotas") else ""
    registered = "registered" if command.get("about") else ""
    joined = "joined" if reply.get("joined") else ""
    compared = "compared" if command.get("digest") else ""
    headers = "headers" if '"headers":"' in recording.command else ""
    parts = (
        command["type"],
        outcome,
        _of_function(command),
        fenced,
        taken,
        joined,
        registered,
        limited,
        headers,
        compared,
    )
    return "-".join(part for part in parts if part)


def _of_function(command: dict[str, Any]) -> str:
    """Return what a command does with steps in queues, or that it runs a function again from a row."""
    rows: list[dict[str, Any]] = command.get("rows", [])
    if any(row["queued"] is not None for row in rows):
        return "queued"
    if any(row["job"] is not None for row in rows):
        return "dropped"
    return "fork" if command["type"] == "run.rerun_from" and command["row"] is not None else ""


if __name__ == "__main__":
    main()
