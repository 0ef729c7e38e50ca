"""The log of calls of models, as stages write it. No provider's library is needed, or known."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import partial
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias, TypedDict, Unpack, cast

import attrs

from holdfast.kernel.authoring.options import check_options
from holdfast.kernel.authoring.threads import InThread
from holdfast.ports.attempt_output import COST_DIGITS, AiCallKind
from holdfast.ports.durations import NO_TIME, Duration, length_within, wanted_length
from holdfast.ports.validation import TEXT, Wanted, an, check, integer, refused

Cost: TypeAlias = Decimal | int
Kind: TypeAlias = AiCallKind | Literal["text", "object", "embed", "stream", "batch"]

_EXACT: Final = Context(prec=60)
_UNIT: Final = Decimal(1).scaleb(-COST_DIGITS)


class AiCallOptions(TypedDict, total=False):
    """What can be said of one call of a model.

    Attributes:
        kind: `text`, `object`, `embed`, `stream` or `batch`.
        input_tokens: How many tokens went in.
        output_tokens: How many came out.
        cost: What it cost, exactly: a Decimal or an integer. Kept to 12 decimals. If left out it is worked out from
            the engine's `prices`, if the model is one of these.
        duration: How long it took: a timedelta, or a number of seconds.
        prompt: What went in, a text or other plain JSON. Redacted first, and stored as a value: if large, in a blob.
        response: What came out; as the prompt.
        error: Why it failed, if it did.
        metadata: Plain JSON by name: the temperature, say, or the reason why it stopped.
        batch: The provider's id of a batch that this is a result of.
        batch_index: Which result of the batch. Each is stored once in a run, whoever records it first.
    """

    kind: Kind
    input_tokens: int
    output_tokens: int
    cost: Cost | None
    duration: Duration | None
    prompt: object
    response: object
    error: str | None
    metadata: Mapping[str, object] | None
    batch: str | None
    batch_index: int | None


class Redact(Protocol):
    """What an engine may be given to take out of calls of models what is not to be stored."""

    def __call__(self, what: Literal["prompt", "response", "error", "metadata"], value: object, /) -> object:
        """Return what is to be stored in place of a value, which is plain JSON. Called in the process of the stage."""
        ...


def _exact_price(_: object, field: "attrs.Attribute[Decimal]", value: object) -> None:
    if not isinstance(value, Decimal) or not value.is_finite() or value < 0:
        raise refused("Price", field.name, value, "a Decimal of at least 0")
    if value.quantize(Decimal("0.000001"), context=_EXACT) != value:
        raise refused("Price", field.name, value, "a price with up to 6 decimals")


@attrs.frozen(kw_only=True)
class Price:
    """What a model costs for each 1,000,000 tokens, exactly, with up to 6 decimals.

    Attributes:
        input: For those that go in.
        output: For those that come out.
    """

    input: Decimal = attrs.field(validator=_exact_price)
    output: Decimal = attrs.field(default=Decimal(0), validator=_exact_price)

    def of(self, input_tokens: int, output_tokens: int) -> int:
        """Return what a call costs, in units of 10**-12."""
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


def _check_call(where: str, topic: object, model: object, options: AiCallOptions) -> None:
    given = cast("dict[str, object]", options)
    check(where, TEXT, topic=topic, model=model)
    check_options(given, AiCallOptions, where)
    for option in _OPTIONS.keys() & given.keys():
        check(where, _OPTIONS[option], **{option: given[option]})


class AiLog(Protocol):
    """What a host offers to log calls of models."""

    def record(self, topic: str, model: str, options: AiCallOptions, /) -> None:
        """Log one call. Blocks while a large text is stored."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some time, by which calls are timed."""
        ...


@attrs.frozen
class StageAi:
    """The log of calls of models of a stage. Only records: making the calls is the stage's own."""

    _log: AiLog

    def record(self, *, topic: str, model: str, **options: Unpack[AiCallOptions]) -> None:
        """Log one call that was made.

        It is stored within about two seconds, at the latest with what the attempt ends with, and counts whether the
        body fails or not: it was paid for. Blocks while a large prompt or response is stored.

        Args:
            topic: What it was made for, as `report.page.3`: totals are of a topic and those below. 1 to 200 characters.
            model: Which model. 1 to 200 characters.
            options: See `AiCallOptions`.

        Raises:
            InvalidArgumentError: An option is unknown, or of another kind; a cost that is a float is not exact.
            InvalidCommandError: A number is negative, or something is too long.
            UnstorableValueError: A prompt, a response or metadata are no plain JSON.
        """
        _check_call("record", topic, model, options)
        self._log.record(topic, model, options)

    def call(self, *, topic: str, model: str, **options: Unpack[AiCallOptions]) -> "AiCalling":
        """Return a context manager in which to make one call: it times it, and logs it at its end.

        Set on it what becomes known: `input_tokens`, `output_tokens`, `cost`, `response`, `metadata`. An error that
        leaves the block is logged as that of the call, and goes on.
        """
        _check_call("call", topic, model, options)
        return AiCalling(self._log, topic, model, options)


class AiCalling:
    """A call of a model that is being made. Its attributes are what is known of it."""

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
        """Begin to measure."""
        self._began = self._log.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Log the call."""
        self._log.record(self._topic, self._model, self.known(error))

    def known(self, error: BaseException | None) -> AiCallOptions:
        """Return what is known of the call now that it has ended."""
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
    """`StageAi` for async stages: what is large is stored in a thread."""

    _ai: StageAi
    _log: AiLog
    _runtime: InThread

    async def record(self, *, topic: str, model: str, **options: Unpack[AiCallOptions]) -> None:
        """See `StageAi.record`."""
        await self._runtime.in_thread(partial(self._ai.record, topic=topic, model=model, **options))

    def call(self, *, topic: str, model: str, **options: Unpack[AiCallOptions]) -> "AsyncAiCalling":
        """See `StageAi.call`. For `async with`."""
        _check_call("call", topic, model, options)
        return AsyncAiCalling(self._log, topic, model, options, self._runtime)


class AsyncAiCalling(AiCalling):
    """`AiCalling` for async stages."""

    def __init__(self, log: AiLog, topic: str, model: str, options: AiCallOptions, runtime: InThread) -> None:
        super().__init__(log, topic, model, options)
        self._runtime = runtime

    async def __aenter__(self) -> Self:
        """Begin to measure."""
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Log the call. One that was cancelled is logged at once: there is no time left to wait for a thread."""
        if error is not None and not isinstance(error, Exception):
            self.__exit__(kind, error, at)
            return
        known = self.known(error)
        await self._runtime.in_thread(partial(self._log.record, self._topic, self._model, known))


def cost_units(cost: object) -> int | None:
    """Return a cost in units of 10**-12, rounded half to even beyond that. InvalidArgumentError if it is not exact."""
    if cost is None:
        return None
    if isinstance(cost, bool) or not isinstance(cost, Decimal | int):
        raise refused("record", "cost", cost, "exact: a Decimal, as Decimal('0.0125'), or an integer")
    if not Decimal(cost).is_finite():
        raise refused("record", "cost", cost, "a number")
    exact = Decimal(cost).quantize(_UNIT, rounding=ROUND_HALF_EVEN, context=_EXACT)
    return int(exact.scaleb(COST_DIGITS, context=_EXACT))


def cost_of(units: int) -> Decimal:
    """Return the cost that so many units of 10**-12 are, exactly and without trailing zeros."""
    whole, part = divmod(units, 10**COST_DIGITS)
    return Decimal(f"{whole}.{part:0{COST_DIGITS}}".rstrip("0").rstrip("."))
