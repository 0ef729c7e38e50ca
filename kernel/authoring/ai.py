"""`ctx.ai`: the log of a stage's calls of AI models. It needs no provider's library."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import partial
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias, TypedDict, Unpack, cast

import attrs

from holdfast.kernel.authoring.options import check_options
from holdfast.kernel.authoring.threads import InThread
from holdfast.kernel.commands import AiCallOutput
from holdfast.ports.attempt_output import COST_DIGITS, AiCallKind
from holdfast.ports.durations import NO_TIME, Duration, length_of, length_within, wanted_length
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.validation import TEXT, Wanted, an, check, integer, refused

Cost: TypeAlias = Decimal | int
Kind: TypeAlias = AiCallKind | Literal["text", "object", "embed", "stream", "batch"]

_EXACT: Final = Context(prec=60)
_UNIT: Final = Decimal(1).scaleb(-COST_DIGITS)


class AiCallOptions(TypedDict, total=False):
    """Options of one logged model call."""

    kind: Kind
    """`text`, `object`, `embed`, `stream` or `batch`."""
    input_tokens: int
    """Number of input tokens."""
    output_tokens: int
    """Number of output tokens."""
    cost: Cost | None
    """Exact cost, a Decimal or an integer, stored to 12 decimals. Default: computed from the engine's `prices`."""
    duration: Duration | None
    """How long the call took: a timedelta or a number of seconds."""
    prompt: object
    """The prompt, plain JSON. It is redacted first, and stored in a blob if it is large."""
    response: object
    """The response, stored in the same way."""
    error: str | None
    """Why the call failed."""
    metadata: Mapping[str, object] | None
    """Plain JSON by name, such as the temperature or the stop reason."""
    batch: str | None
    """The provider's id of the batch that contains this result."""
    batch_index: int | None
    """Index of the result in the batch. Each result is stored once in a run, from the first attempt that records it."""


class Redact(Protocol):
    """An engine's `redact` function, which removes from logged model calls what must not be stored."""

    def __call__(self, what: Literal["prompt", "response", "error", "metadata"], value: object, /) -> object:
        """Return plain JSON to store instead of `value`. Called in the process of the stage."""
        ...


def _exact_price(_: object, field: "attrs.Attribute[Decimal]", value: object) -> None:
    if not isinstance(value, Decimal) or not value.is_finite() or value < 0:
        raise refused("Price", field.name, value, "a Decimal of at least 0")
    if value.quantize(Decimal("0.000001"), context=_EXACT) != value:
        raise refused("Price", field.name, value, "a price with up to 6 decimals")


@attrs.frozen(kw_only=True)
class Price:
    """Price of a model for 1,000,000 tokens, exact, with up to 6 decimals.

    Attributes:
        input: Price of input tokens.
        output: Price of output tokens.
    """

    input: Decimal = attrs.field(validator=_exact_price)
    output: Decimal = attrs.field(default=Decimal(0), validator=_exact_price)

    def of(self, input_tokens: int, output_tokens: int) -> int:
        """Return the cost of a call, in units of 10**-12."""
        scale = COST_DIGITS - 6
        return int(self.input.scaleb(scale)) * input_tokens + int(self.output.scaleb(scale)) * output_tokens


_OPTIONS: Final[Mapping[str, Wanted]] = {
    "duration": Wanted(
        wanted_length(NO_TIME), lambda value: length_within(value, NO_TIME) is not None
    ).or_none,
    "error": TEXT.or_none,
    "metadata": an("a dict of plain JSON by names", Mapping).or_none,
    "batch": TEXT.or_none,
    "batch_index": integer(0).or_none,
}


def check_call(where: str, topic: object, model: object, options: AiCallOptions) -> None:
    """Check the arguments of one logged call. InvalidArgumentError."""
    given = cast("dict[str, object]", options)
    check(where, TEXT, topic=topic, model=model)
    check_options(given, AiCallOptions, where)
    for option in _OPTIONS.keys() & given.keys():
        check(where, _OPTIONS[option], **{option: given[option]})


class AiLog(Protocol):
    """The log of model calls that a host provides."""

    def record(self, topic: str, model: str, options: AiCallOptions, /) -> None:
        """Log one call. Blocks while a large text is stored."""
        ...

    def monotonic(self) -> float:
        """Return the seconds of a monotonic clock, to measure calls."""
        ...


@attrs.frozen
class Ai:
    """The log of model calls of a stage, as `ctx.ai`. It only logs: the stage makes the calls."""

    _log: AiLog

    def record(self, *, topic: str, model: str, **options: Unpack[AiCallOptions]) -> None:
        """Log one model call that was made: `ctx.ai.record(topic="summary", model="m-1", input_tokens=900)`.

        It is stored within about two seconds, and at the latest with the outcome of the attempt, even if the body
        fails. Blocks while a large prompt or response is stored.

        Args:
            topic: What the call was for, such as `report.page.3`, 1 to 200 characters. Totals of a topic include the
                topics below it.
            model: Name of the model, 1 to 200 characters.
            options: See `AiCallOptions`.

        Raises:
            InvalidArgumentError: An option is unknown or of the wrong type, such as a cost that is a float.
            InvalidCommandError: A number is negative, or a text is too long.
            UnstorableValueError: A prompt, a response or metadata are not plain JSON.
        """
        check_call("record", topic, model, options)
        self._log.record(topic, model, options)

    def call(self, *, topic: str, model: str, **options: Unpack[AiCallOptions]) -> "AiCallRecorder":
        """Return a context manager that measures one model call and logs it: `with ctx.ai.call(...) as call:`.

        Set the results on it: `input_tokens`, `output_tokens`, `cost`, `response`, `metadata`. An error in the block is
        logged as the error of the call, and raised.
        """
        check_call("call", topic, model, options)
        return AiCallRecorder(self._log, topic, model, options)


class AiCallRecorder:
    """A model call in progress. Set its attributes before it ends."""

    def __init__(self, log: AiLog, topic: str, model: str, options: AiCallOptions) -> None:
        self._log = log
        self._topic = topic
        self._model = model
        self._options = options
        self._began = 0.0
        self.input_tokens = options.get("input_tokens", 0)
        self.output_tokens = options.get("output_tokens", 0)
        self.cost: Cost | None = options.get("cost")
        self.response: object = options.get("response")
        self.metadata: dict[str, object] = dict(options.get("metadata") or {})

    def __enter__(self) -> Self:
        """Start the measurement."""
        self._began = self._log.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Log the call."""
        self._log.record(self._topic, self._model, self.final_options(error))

    def final_options(self, error: BaseException | None) -> AiCallOptions:
        """Return the options to log, now that the call has ended."""
        known: AiCallOptions = {
            **self._options,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": self.cost,
            "response": self.response,
            "metadata": self.metadata,
            "duration": timedelta(seconds=self._log.monotonic() - self._began),
        }
        if error is not None:
            known["error"] = f"{type(error).__name__}: {error}"
        return known


@attrs.frozen
class AsyncAi:
    """`Ai` for async stages, as `ctx.aio.ai`: large texts are stored in a thread."""

    _ai: Ai
    _log: AiLog
    _runtime: InThread

    async def record(self, *, topic: str, model: str, **options: Unpack[AiCallOptions]) -> None:
        """See `Ai.record`."""
        await self._runtime.in_thread(partial(self._ai.record, topic=topic, model=model, **options))

    def call(self, *, topic: str, model: str, **options: Unpack[AiCallOptions]) -> "AsyncAiCallRecorder":
        """See `Ai.call`. Use `async with`."""
        check_call("call", topic, model, options)
        return AsyncAiCallRecorder(self._log, topic, model, options, self._runtime)


class AsyncAiCallRecorder(AiCallRecorder):
    """`AiCallRecorder` for async stages."""

    def __init__(self, log: AiLog, topic: str, model: str, options: AiCallOptions, runtime: InThread) -> None:
        super().__init__(log, topic, model, options)
        self._runtime = runtime

    async def __aenter__(self) -> Self:
        """Start the measurement."""
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Log the call. After a cancellation it is logged without a thread: waiting for one would be cancelled too."""
        if error is not None and not isinstance(error, Exception):
            self.__exit__(kind, error, at)
            return
        known = self.final_options(error)
        await self._runtime.in_thread(partial(self._log.record, self._topic, self._model, known))


def call_output(topic: str, model: str, options: AiCallOptions) -> AiCallOutput:
    """Return a logged call, without its texts: they are redacted first. Raises as `Ai.record`."""
    duration = length_of(options.get("duration"))
    return AiCallOutput(
        topic=topic,
        model=model,
        kind=_kind(options.get("kind", "text")),
        input_tokens=_integer("input_tokens", options.get("input_tokens", 0)),
        output_tokens=_integer("output_tokens", options.get("output_tokens", 0)),
        cost=cost_units(options.get("cost")),
        duration=None if duration is None else duration // timedelta(microseconds=1),
        batch=options.get("batch"),
        batch_index=options.get("batch_index"),
    )


def _kind(kind: str) -> AiCallKind:
    try:
        return AiCallKind(kind)
    except ValueError:
        known = ", ".join(one.value for one in AiCallKind)
        raise InvalidCommandError(f"kind is {kind!r}; it is one of {known}") from None


def _integer(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidCommandError(f"{name} is {value!r}; it must be an integer")
    return value


def cost_units(cost: object) -> int | None:
    """Return a cost in units of 10**-12, rounded half to even. InvalidArgumentError if it is not exact."""
    if cost is None:
        return None
    if isinstance(cost, bool) or not isinstance(cost, Decimal | int):
        raise refused("record", "cost", cost, "exact: a Decimal, as Decimal('0.0125'), or an integer")
    if not Decimal(cost).is_finite():
        raise refused("record", "cost", cost, "a number")
    exact = Decimal(cost).quantize(_UNIT, rounding=ROUND_HALF_EVEN, context=_EXACT)
    return int(exact.scaleb(COST_DIGITS, context=_EXACT))


def cost_of(units: int) -> Decimal:
    """Return a number of units of 10**-12 as an exact cost without trailing zeros."""
    whole, part = divmod(units, 10**COST_DIGITS)
    return Decimal(f"{whole}.{part:0{COST_DIGITS}}".rstrip("0").rstrip("."))
