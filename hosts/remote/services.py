"""What `step_context()` offers in a remote worker: the attempt, and a log that goes to Python's `logging`."""

import logging
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

import anyio.to_thread

from holdfast.kernel.authoring.ai import AiLog
from holdfast.kernel.authoring.artifacts import Artifacts
from holdfast.kernel.authoring.attempt_context import Blobs, Level
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AnnotationScope

R = TypeVar("R")

_log = logging.getLogger("holdfast.remote.steps")


class RemoteServices:
    """The services of one attempt. What needs the store raises RuntimeError."""

    def __init__(self, body: str) -> None:
        self._body = body
        """Which body it is, such as "step 'embed'"."""
        self.cancelled = False
        """See `AttemptServices.cancelled`."""

    def log(self, message: str, fields: Mapping[str, str | float | bool], /, level: Level = "info") -> None:
        """Write a line to the log of the process."""
        _log.log(
            logging.getLevelNamesMapping()[level.upper()], "%s: %s %s", self._body, message, dict(fields)
        )

    def progress(self, done: float, of: float, message: str, /) -> None:
        """Write the progress to the log of the process."""
        self.log(message or "progress", {"done": done, "of": of})

    def heartbeat(self, _: str, /) -> None:
        """Do nothing: the worker sends the heartbeats of its tasks."""

    def last_heartbeat(self) -> str | None:
        """Return None: no details are stored."""
        return None

    async def in_thread(self, call: Callable[[], R], /) -> R:
        """Run a call in a thread."""
        return await anyio.to_thread.run_sync(call)

    def annotate(
        self,
        _name: str,
        _value: object,
        /,
        *,
        scope: AnnotationScope | None,  # the names are those of the port
        actor: Actor | None,
        reason: str,
        key: str | None,
    ) -> None:
        """Raise RuntimeError."""
        self._refuse("annotations")

    def publish(self, _type: str, _data: str, /) -> None:
        """Raise RuntimeError."""
        self._refuse("events")

    def outputs(self, _stage: str, /) -> NoReturn:
        """Raise RuntimeError."""
        self._refuse("outputs of other stages")

    @property
    def blobs(self) -> Blobs:
        """Raise RuntimeError."""
        self._refuse("blobs")

    @property
    def artifacts(self) -> Artifacts:
        """Raise RuntimeError."""
        self._refuse("artifacts")

    @property
    def ai(self) -> AiLog:
        """Raise RuntimeError."""
        self._refuse("a log of model calls")

    def _refuse(self, what: str) -> NoReturn:
        raise RuntimeError(
            f"a remote worker has no {what}: return what {self._body} has found, and let the workflow store it"
        )
