"""Whether a run ended as it does without faults, and if not, whether faults alone explain that."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from holdfast.hosts.infos import error_text
from holdfast.ports.json import parse
from holdfast.ports.records import STAGE_FAILED, TERMINAL, HistoryRow, Run, RunStatus
from holdfast.ports.references import reference_from
from holdfast.testing.trials import Trial

_OF_FAULTS: Final = frozenset(
    {
        "cancelled",
        "deadline",
        "gave_up",
        "heartbeat_timeout",
        "timeout",
        "timeout_total",
        "unavailable",
        "worker_lost",
    }
)
"""Codes of failures for which faults suffice: lost workers, and time that passed while nobody could do anything."""

Node = tuple[str, str | None, int | None]


def problems(trial: Trial, usual: Trial, same: Callable[[Any], object] | None) -> list[str]:
    """Return what is wrong with a run, compared with what is usual: nothing, if all is well."""
    found = [f"a promise of Holdfast's own was broken, please report it: {one}" for one in trial.broken]
    if trial.run.status not in TERMINAL:
        return [*found, f"it did not end: it is {trial.run.status}"]
    excused = is_excused(trial, usual)
    found += _of_effects(trial, usual, is_whole=not excused)
    return found if excused else [*found, *_of_ends(trial, usual, same)]


def is_excused(trial: Trial, usual: Trial) -> bool:
    """Whether a run has failed by what faults can do: they used up its attempts, or its time.

    A body that fails more often by errors of its own than it usually does is not excused.
    """
    if trial.run.status is not RunStatus.FAILED or (usual.run.error and _where(trial) == _where(usual)):
        return False
    return _is_by_faults(trial, trial.run, _own_errors(usual))


def _is_by_faults(trial: Trial, run: Run, usually: Counter[Node]) -> bool:
    error = _error(run)
    stage, item = error.get("stage"), error.get("item")
    facts = [
        _facts(row)
        for row in trial.rows[run.id]
        if row.type == STAGE_FAILED and (row.node, row.item) == (stage, item)
    ]
    child = trial.runs.get(str(facts[-1].get("run"))) if facts else None
    if child is not None:
        return child.status is RunStatus.FAILED and _is_by_faults(trial, child, usually)
    where = (run.id, stage, item)
    return _own_errors(trial)[where] <= usually[where]


def _of_effects(trial: Trial, usual: Trial, *, is_whole: bool) -> Iterator[str]:
    for what in sorted({*trial.effects, *usual.effects}):
        count, expected = trial.effects.get(what, 0), usual.effects.get(what, 0)
        if count > expected or (is_whole and count < expected):
            yield f"{what!r} happened {_times(count)}; without faults {_times(expected)}"


def _of_ends(trial: Trial, usual: Trial, same: Callable[[Any], object] | None) -> Iterator[str]:
    ended, usually = trial.run.status, usual.run.status
    if ended is not usually:
        why = f": {error_text(trial.run)}" if trial.run.error else ""
        yield f"it ended as {ended}{why}; without faults as {usually}"
    elif ended is RunStatus.COMPLETED:
        gave, usually_gave = _gave(trial, same), _gave(usual, same)
        if gave != usually_gave:
            yield f"it gave {gave}; without faults {usually_gave}"
    elif _where(trial) != _where(usual):
        yield f"it ended with {error_text(trial.run)}; without faults with {error_text(usual.run)}"


def _gave(trial: Trial, same: Callable[[Any], object] | None) -> object:
    if same is not None:
        return same(trial.handle.output(trial.run))
    return trial.handle.core.inputs.text(trial.run.key, reference_from(trial.run.result or "null"))


def _own_errors(trial: Trial) -> Counter[Node]:
    """Return how often bodies have failed by errors of their own, by run, stage and item."""
    return Counter(
        (run, row.node, row.item)
        for run, rows in trial.rows.items()
        for row in rows
        if row.type in {"stage.retrying", STAGE_FAILED} and _facts(row).get("code") not in _OF_FAULTS
    )


def _facts(row: HistoryRow) -> dict[str, Any]:
    return cast("dict[str, Any]", parse(row.data)) if row.data else {}


def _error(run: Run) -> dict[str, Any]:
    return cast("dict[str, Any]", parse(run.error)) if run.error else {}


def _where(trial: Trial) -> tuple[object, object]:
    error = _error(trial.run)
    return error.get("stage"), error.get("item")


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
