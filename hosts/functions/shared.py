"""What all drivers of functions share that have one kernel and one event loop."""

from collections.abc import Callable
from typing import Final

import attrs

from holdfast.hosts.functions.gathering import Here
from holdfast.hosts.functions.opening import Opener
from holdfast.hosts.functions.recording import Recorder
from holdfast.hosts.loops import ThisLoop, caller_into_loop


@attrs.define(eq=False)
class Shared:
    """The loop, and what opens functions and records what they come to, many at a time."""

    loop: ThisLoop = attrs.field(factory=ThisLoop)
    in_loop: Callable[[Callable[[], object]], None] = attrs.field(factory=caller_into_loop)
    opener: Opener = attrs.field(factory=Opener)
    recorder: Recorder = attrs.field(factory=Recorder)


shared_here: Final[Here[Shared]] = Here("holdfast_drivers", Shared)
