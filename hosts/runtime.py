"""What a running attempt can reach: outputs of earlier stages, its log, its blobs, and whether to stop."""

import hashlib
import math
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from holdfast.hosts.inputs import Inputs
from holdfast.hosts.payloads import Payloads, Place
from holdfast.hosts.process.threads import result_in_thread
from holdfast.kernel.authoring.context import BlobRef, StageBlobs, StageOutputs
from holdfast.kernel.commands import Said
from holdfast.ports.clock import Clock, micros
from holdfast.ports.errors import BlobCorruptError, NoBlobStoreError
from holdfast.ports.json import canonical
from holdfast.ports.persistence import OutputRows, Persistence
from holdfast.ports.references import Reference, is_map, leaves, located, references_from

R = TypeVar("R")

SAID_MAX: Final = 1_000
"""How many lines of a log are kept between two heartbeats; older ones are dropped."""

_UNPRINTABLE: Final = re.compile(r"[\x00\ud800-\udfff]")


class AttemptRuntime:
    """Serves one attempt's context. Its methods may be called from any thread."""

    def __init__(
        self,
        *,
        run: str,
        kept: str | None,
        place: Place,
        persistence: Persistence,
        inputs: Inputs,
        payloads: Payloads,
        clock: Clock,
    ) -> None:
        self._run = run
        self._kept = kept
        self._persistence = persistence
        self._inputs = inputs
        self._clock = clock
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._log: deque[Said] = deque(maxlen=SAID_MAX)
        self._progress: Said | None = None
        self._blobs = AttemptBlobs(payloads, place)

    @property
    def blobs(self) -> StageBlobs:
        """See `StageRuntime.blobs`."""
        return self._blobs

    @property
    def cancelled(self) -> bool:
        """See `StageRuntime.cancelled`."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Let the body know that it is to stop."""
        self._cancelled.set()

    def outputs(self, stage: str, /) -> StageOutputs | None:
        """See `StageRuntime.outputs`. Reads the store."""
        rows = self._persistence.read(OutputRows(self._run, stage))
        if not rows:
            return self._kept_outputs(stage)
        mapped = rows[0].item is not None
        in_order = sorted(rows, key=lambda row: row.item or 0)
        wanted: tuple[tuple[str, Reference], ...] = tuple((self._run, row.number) for row in in_order)
        values = self._inputs.values(wanted)
        return StageOutputs(tuple(self._inputs.one(values[key]) for key in wanted), mapped=mapped)

    def _kept_outputs(self, stage: str) -> StageOutputs | None:
        """Return what a stage gave that this generation of the run does not run again."""
        reference = references_from(self._kept).get(stage)
        if reference is None:
            return None
        wanted = tuple(located(self._run, leaf) for leaf in leaves(reference))
        values = self._inputs.values(wanted)
        texts = tuple(self._inputs.one((payload,)) for place in wanted for payload in values[place])
        return StageOutputs(texts, mapped=is_map(reference))

    async def in_thread(self, call: Callable[[], R], /) -> R:
        """See `StageRuntime.in_thread`."""
        return await result_in_thread(call)

    def progress(self, done: float, of: float, message: str, /) -> None:
        """See `StageRuntime.progress`. Only the last one between two heartbeats is kept."""
        said = self._said("progress", {"done": done, "of": of, "message": printable(message)})
        with self._lock:
            self._progress = said

    def log(self, message: str, fields: dict[str, str | int | float | bool], /) -> None:
        """See `StageRuntime.log`."""
        clean = {name: _storable(value) for name, value in fields.items()}
        said = self._said("log", {"message": printable(message), "fields": clean})
        with self._lock:
            self._log.append(said)

    def take_said(self) -> tuple[Said, ...]:
        """Return what was said since this was last called."""
        with self._lock:
            said = (*self._log, *((self._progress,) if self._progress else ()))
            self._log.clear()
            self._progress = None
        return said

    def put_back(self, said: Sequence[Said]) -> None:
        """Keep what `take_said` gave for the next time: it could not be stored."""
        with self._lock:
            lines = [one for one in said if one.kind == "log"]
            self._log = deque((*lines, *self._log), maxlen=SAID_MAX)
            self._progress = self._progress or next((one for one in said if one.kind == "progress"), None)

    def _said(self, kind: str, data: dict[str, object]) -> Said:
        now = micros(self._clock.now())
        return Said(kind="progress" if kind == "progress" else "log", at=now, data=canonical(data))


class AttemptBlobs:
    """See `StageBlobs`. Blobs that a stage puts are its attempt's own."""

    def __init__(self, payloads: Payloads, place: Place) -> None:
        self._payloads = payloads
        self._place = place

    def put(self, name: str, data: bytes, /) -> BlobRef:
        """See `StageBlobs.put`."""
        if self._payloads.blobs is None:
            raise NoBlobStoreError(name)
        sha256 = hashlib.sha256(data).hexdigest()
        key = self._place.key(sha256)
        self._payloads.blobs.put(key, data)
        return BlobRef(key=key, sha256=sha256, size=len(data))

    def get(self, ref: BlobRef, /) -> bytes:
        """See `StageBlobs.get`."""
        if self._payloads.blobs is None:
            raise NoBlobStoreError(ref.key)
        if not ref.key.startswith(f"{self._place.namespace}/"):
            raise BlobCorruptError(ref.key)
        data = self._payloads.blobs.get(ref.key)
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise BlobCorruptError(ref.key)
        return data


def _storable(value: str | float) -> str | float:
    if isinstance(value, str):
        return printable(value)
    return value if isinstance(value, int) or math.isfinite(value) else str(value)


def printable(text: str) -> str:
    """Return the text with what no database can keep replaced."""
    return _UNPRINTABLE.sub("\ufffd", text)
