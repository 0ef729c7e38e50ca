"""Whole values of a run as JSON text: its input, its result, and those of its stages and steps."""

from holdfast.hosts.inspection.run_details import every_step
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.wiring.services import Core
from holdfast.ports.errors import ResultMissingError
from holdfast.ports.queries.history import HistoryOf, OutputRows
from holdfast.ports.records.run import Run
from holdfast.ports.references import Reference, reference_from, references_from


def input_text(core: Core, run: Run) -> str:
    """Return the input of a generation; of a durable function, an object of its arguments by name."""
    return _text_of_row(core, run, run.first_row) if run.gathered is None else core.inputs.input_of(run)


def result_text(core: Core, run: Run) -> str:
    """Return the result of a completed run."""
    return core.inputs.text(run.key, reference_from(run.result or "null"))


def part_result_text(core: Core, run: Run, point: str) -> str:
    """Return the result of a stage, or of a step of a durable function. Raises ResultMissingError.

    Of a map, the results of its completed items in their order.
    """
    plan = core.inputs.plan(run.plan)
    if plan.function is not None:
        return _text_of_row(core, run, _completed_step(core, run, point).row)
    if point not in plan.nodes:
        raise ResultMissingError(run.id, point, f"its stages are {', '.join(plan.nodes)}")
    reference = references_from(run.inherited).get(point) or _completed_stage(core, run, point)
    return core.inputs.text(run.key, reference)


def _text_of_row(core: Core, run: Run, number: int) -> str:
    holder = run.holder_of(number)
    (row,) = core.stores.persistence.read(HistoryOf(holder, number - 1, 1))
    return "null" if row.payload is None else core.payloads.get(row.payload)


def _completed_stage(core: Core, run: Run, stage: str) -> Reference:
    rows = core.stores.persistence.read(OutputRows(run.key, stage))
    if not rows:
        raise ResultMissingError(run.id, stage, "the stage has not completed")
    if rows[0].item is None:
        return rows[0].number
    return ("list", *(row.number for row in sorted(rows, key=lambda row: row.item or 0)))


def _completed_step(core: Core, run: Run, point: str) -> StepDetails:
    steps = every_step(core, run)
    name, _, number = point.rpartition("#")
    found = [step for step in steps if step.call == point] or [step for step in steps if step.step == point]
    if not found and number.isdecimal():
        found = [step for step in steps if step.step == name][int(number) - 1 :][:1]
    if not found:
        known = ", ".join(dict.fromkeys(step.step for step in steps)) or "none"
        raise ResultMissingError(run.id, point, f"the steps in its history are {known}")
    if len(found) > 1:
        calls = ", ".join(f"{point}#{index} (call {step.call})" for index, step in enumerate(found[:10], 1))
        raise ResultMissingError(run.id, point, f"it was called {len(found)} times; name one of {calls}")
    if found[0].state != "done":
        raise ResultMissingError(run.id, point, f"the step is {found[0].state}")
    return found[0]
