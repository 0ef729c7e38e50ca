"""Loads the inputs of many attempts at once, outside any transaction."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final, cast

import attrs

from holdfast.hosts.wiring.payloads import Payloads
from holdfast.kernel.authoring.gather import joined_input
from holdfast.kernel.commands import Attempt
from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.kernel.pipelines.plan_cache import PlanCache
from holdfast.ports.errors import UnknownPlanError
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.values import LoadValues, LoadWork, PlansByFingerprint, StoredValue
from holdfast.ports.records.job import job_key
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Payload
from holdfast.ports.references import Reference, is_map, is_partial, leaves, located, parts_of, reference_from

Values = Mapping[tuple[str, Reference], tuple[Payload, ...]]


@attrs.frozen(kw_only=True)
class LoadedAttempt:
    """An attempt, and what it needs to run."""

    attempt: Attempt
    run: Run
    """The run of the attempt."""
    plan: Plan
    """The plan of the run."""
    input: str = "null"
    """The input as JSON text."""
    error: Exception | None = None
    """Why the input could not be loaded; None if it was."""
    is_left_out: bool = False
    """Whether the input was not loaded, because it is large."""
    blob: str | None = None
    """The key of the blob that is the whole input, if it was left out; None if it must be composed."""


@attrs.frozen
class Preloaded:
    """Runs and values that need not be read from the store."""

    runs: Mapping[str, Run] = attrs.field(factory=dict[str, Run])
    """By run key."""
    values: Values = attrs.field(factory=dict[tuple[str, Reference], tuple[Payload, ...]])
    """By run key and reference (see `located`)."""


NOTHING_PRELOADED: Final = Preloaded()


class InputLoader:
    """Loads inputs and plans. Plans are cached, as they never change."""

    def __init__(self, persistence: Persistence, payloads: Payloads) -> None:
        self._persistence = persistence
        self._payloads = payloads
        self._plans = PlanCache()

    def load(
        self,
        attempts: Sequence[Attempt],
        takes_input: Callable[[Attempt], bool],
        known: Preloaded = NOTHING_PRELOADED,
        *,
        length_max: int | None = None,
    ) -> list[LoadedAttempt]:
        """Return the work for attempts, with at most one query to the store, however many there are.

        Attempts for which `takes_input` is False get no input. Inputs that are longer than `length_max`, or partly in
        blobs, are left out.
        """
        references = {
            attempt.job: reference_from(attempt.input) for attempt in attempts if takes_input(attempt)
        }
        wanted = dict.fromkeys(
            located(attempt.run, leaf)
            for attempt in attempts
            if attempt.job in references
            for leaf in leaves(references[attempt.job])
        )
        runs, values = self._read(attempts, wanted, known)
        plans = self._plans_of(run.plan for run in runs.values())
        return [
            self._work(
                attempt, run, _required(plans, run.plan), references.get(attempt.job), values, length_max
            )
            for attempt in attempts
            if (run := runs.get(attempt.run)) is not None
        ]

    def _read(
        self, attempts: Sequence[Attempt], wanted: Iterable[tuple[str, Reference]], known: Preloaded
    ) -> tuple[Mapping[str, Run], Values]:
        """Return the runs of attempts and the wanted values, including the known ones."""
        jobs = tuple((job_key(one.job), one.epoch) for one in attempts if one.run not in known.runs)
        missing = tuple(place for place in wanted if place not in known.values)
        if not jobs:
            return known.runs, {**known.values, **self.values(missing)}
        read = self._persistence.read(LoadWork(jobs, missing))
        return (
            {**known.runs, **{run.key: run for run in read.runs}},
            {**known.values, **_by_place(read.values)},
        )

    def text(self, run: str, reference: Reference) -> str:
        """Return one value of a run as JSON text."""
        wanted = dict.fromkeys(located(run, leaf) for leaf in leaves(reference))
        return self.compose(run, reference, self.values(tuple(wanted)))

    def input_of(self, run: Run) -> str:
        """Return the input of a run as JSON text, as its code gets it."""
        text = self.text(run.key, run.input)
        return joined_input(text) if run.has_list_of_inputs else text

    def values(self, wanted: tuple[tuple[str, Reference], ...]) -> Values:
        """Return the payloads of references, by run key and reference."""
        found: tuple[StoredValue, ...] = self._persistence.read(LoadValues(wanted)) if wanted else ()
        return _by_place(found)

    def one(self, payloads: tuple[Payload, ...]) -> str:
        """Return the text of a value that consists of one payload."""
        return self._payloads.get(payloads[0])

    def plan(self, fingerprint: str) -> Plan:
        """Return a stored plan. Raises UnknownPlanError."""
        return _required(self._plans_of((fingerprint,)), fingerprint)

    def _plans_of(self, fingerprints: Iterable[str]) -> dict[str, Plan]:
        wanted = set(fingerprints)
        plans = self._plans.found(wanted)
        unknown = tuple(sorted(wanted - plans.keys()))
        if unknown:
            for row in self._persistence.read(PlansByFingerprint(unknown)):
                plans[row.fingerprint] = plan = plan_from_json(row.body)
                self._plans.add(plan)
        return plans

    def _work(
        self,
        attempt: Attempt,
        run: Run,
        plan: Plan,
        reference: Reference | None,
        values: Values,
        length_max: int | None,
    ) -> LoadedAttempt:
        if reference is None:
            return LoadedAttempt(attempt=attempt, run=run, plan=plan)
        try:
            if length_max is not None and _length(run.key, reference, values) > length_max:
                blob = None if run.has_list_of_inputs else _only_blob(run.key, reference, values)
                return LoadedAttempt(attempt=attempt, run=run, plan=plan, is_left_out=True, blob=blob)
            text = self.compose(run.key, reference, values)
            if run.has_list_of_inputs and reference == run.input:
                text = joined_input(text)
            return LoadedAttempt(attempt=attempt, run=run, plan=plan, input=text)
        except Exception as error:  # noqa: BLE001  # any error of a blob store fails only this attempt
            return LoadedAttempt(attempt=attempt, run=run, plan=plan, error=error)

    def compose(self, run: str, reference: Reference, values: Values) -> str:
        """Return a value as JSON text, composed of the texts of its parts without parsing them."""
        match reference:
            case ("list", *parts):
                texts = [self.compose(run, cast("Reference", part), values) for part in parts]
                return f"[{','.join(texts)}]"
            case _ if is_partial(reference):
                results, failures = (self.compose(run, part, values) for part in parts_of(reference))
                return f'{{"failures":{failures},"results":{results}}}'
            case _:
                texts = [self._payloads.get(payload) for payload in values[located(run, reference)]]
                return f"[{','.join(texts)}]" if is_map(reference) else texts[0]


def _length(run: str, reference: Reference, values: Values) -> float:
    """Return the length of a value in characters; infinity if a part of it is in a blob."""
    payloads = (one for leaf in leaves(reference) for one in values[located(run, leaf)])
    return sum(inf if one.inline is None else len(one.inline) for one in payloads)


def _only_blob(run: str, reference: Reference, values: Values) -> str | None:
    """Return the key of the blob that is the whole value; None if it has other parts, or is in none."""
    if (
        is_partial(reference)
        or is_map(reference)
        or (isinstance(reference, tuple) and reference[0] == "list")
    ):
        return None
    payloads = values[located(run, reference)]
    return payloads[0].blob if len(payloads) == 1 else None


def _by_place(values: Iterable[StoredValue]) -> Values:
    return {(value.run, value.reference): value.payloads for value in values}


def _required(plans: Mapping[str, Plan], fingerprint: str) -> Plan:
    if fingerprint not in plans:
        raise UnknownPlanError(fingerprint)
    return plans[fingerprint]
