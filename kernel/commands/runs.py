"""Commands on runs, and their replies."""

from typing import ClassVar, Literal

import attrs

from holdfast.kernel.commands.command import Command
from holdfast.ports.records import Payload, RunStatus


@attrs.frozen(kw_only=True)
class RunCreated:
    """The run is stored, and its first jobs with it. `created` is False if it was there before."""

    run_id: str
    run: str
    generation: int
    status: RunStatus
    created: bool


@attrs.frozen(kw_only=True)
class RunCreate(Command[RunCreated]):
    """Store a run and its first jobs. `id` is drawn if None. UnknownWorkflowError, RunExistsError."""

    type: ClassVar[Literal["run.create"]] = "run.create"
    workflow: str
    version: str | None = None
    input: Payload
    id: str | None = None
    if_exists: Literal["error", "return"] = "error"
    queue: str | None = None
    priority: int = 0
    attributes: str | None = None


@attrs.frozen(kw_only=True)
class RunTransitioned:
    """What `run.transition` did."""

    action: Literal["advanced", "completed", "none"]
    status: RunStatus


@attrs.frozen(kw_only=True)
class RunTransition(Command[RunTransitioned]):
    """Work out what comes next. Settling does so by itself: this is for repair. RunNotFoundError."""

    type: ClassVar[Literal["run.transition"]] = "run.transition"
    run_id: str


@attrs.frozen(kw_only=True)
class RunEnded:
    """The status the run is in now. `changed` is False if it had ended before."""

    status: RunStatus
    changed: bool


@attrs.frozen(kw_only=True)
class RunCancel(Command[RunEnded]):
    """End a run as cancelled; what is under way loses its right to write. RunNotFoundError."""

    type: ClassVar[Literal["run.cancel"]] = "run.cancel"
    run_id: str
    reason: str = ""


@attrs.frozen(kw_only=True)
class RunTerminate(Command[RunEnded]):
    """End a run as cancelled at once, whatever it has left to clean up. RunNotFoundError."""

    type: ClassVar[Literal["run.terminate"]] = "run.terminate"
    run_id: str
    reason: str = ""


@attrs.frozen(kw_only=True)
class RunPaused:
    """The status the run is in now. `changed` is False if it was so before, or has ended."""

    status: RunStatus
    changed: bool


@attrs.frozen(kw_only=True)
class RunPause(Command[RunPaused]):
    """Start nothing more of a run until it is resumed; what is under way is settled as ever. RunNotFoundError."""

    type: ClassVar[Literal["run.pause"]] = "run.pause"
    run_id: str
    reason: str = ""


@attrs.frozen(kw_only=True)
class RunResume(Command[RunPaused]):
    """Let a paused run go on where it is. RunNotFoundError."""

    type: ClassVar[Literal["run.resume"]] = "run.resume"
    run_id: str
    reason: str = ""


@attrs.frozen(kw_only=True)
class RunRepaired:
    """The runs that lacked a job and got it back, and where to go on (None: from the start again)."""

    repaired: tuple[str, ...]
    checked: int
    next: str | None


@attrs.frozen(kw_only=True)
class RunRepair(Command[RunRepaired]):
    """Find active runs without the jobs that they need, from the run key `after` on, and give them these."""

    type: ClassVar[Literal["run.repair"]] = "run.repair"
    after: str = ""
    limit: int = 500
