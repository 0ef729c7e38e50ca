"""Write golden recordings: `python -m tests.golden.make`, from the root of the repository.

A golden recording is never edited and never written again: whatever becomes of the kernel, it must make the recorded
decision of the recorded state for ever, because somewhere a run is in that state. Where a decision changes on purpose,
the change needs a way to tell old runs from new ones, and a new recording beside the old one.
"""

import json
from pathlib import Path
from typing import Final

from holdfast.kernel.record import Recording
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
    return "-".join(part for part in (command["type"], outcome.lower(), fenced, taken) if part)


if __name__ == "__main__":
    main()
