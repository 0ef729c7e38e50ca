"""The rule for registering workflows: their plans and schemas are stored, and old versions are forgotten."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from holdfast.kernel.commands import WorkflowRegister, WorkflowsRegistered
from holdfast.kernel.composed_searches import RegisteredWorkflows
from holdfast.kernel.rules.run_creation import store_plan
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, UnknownWorkflowError
from holdfast.ports.json import parse
from holdfast.ports.records.values import Micros
from holdfast.ports.records.workflow import WorkflowKey, WorkflowRow
from holdfast.ports.tables import WORKFLOWS

VERSIONS_KEPT: Final = 20
"""How many versions of a workflow are kept."""
FRESH: Final[Micros] = 60_000_000
"""For how long a registration is not repeated, so that a thousand workers that start together write once."""


def reads_of_register(command: WorkflowRegister) -> Reads:
    """Lock the workflows, and find the other versions of the namespace."""
    return Reads(search=_search(command))


def decide_register(
    state: State, command: WorkflowRegister, now: Micros, _: Ids
) -> Decision[WorkflowsRegistered]:
    """Store the workflows that are new, changed, or were registered some time ago."""
    changes: list[Change] = []
    stored: dict[WorkflowKey, Micros] = dict(state.found[_search(command)].workflows)
    plans: set[str] = set()
    rows: list[WorkflowRow] = []
    for place, one in enumerate(command.workflows):
        plan = state.workflows.get((one.workflow, one.version))
        if plan is None:
            raise UnknownWorkflowError(one.workflow, one.version)
        if not _is_object(one.schemas):
            raise InvalidCommandError(f"the schemas of {one.workflow}@{one.version} are not a JSON object")
        row = WorkflowRow(
            namespace=command.namespace,
            name=one.workflow,
            version=one.version,
            plan=plan.fingerprint,
            schemas=one.schemas,
            # Of versions that are registered together, the last one is the newest.
            registered_at=now + place,
        )
        rows.append(row)
    # All versions of a name are written, or none: otherwise one that is skipped would be older than those before it.
    kept = _kept(rows)
    stale = {row.name for row in kept if not _is_fresh(state.tables.workflows.get(row.key), row)}
    written = [row for row in kept if row.name in stale]
    for row in written:
        if row.plan not in plans:
            changes += store_plan(state, state.workflows[row.name, row.version])
            plans.add(row.plan)
        changes.append(Update(row) if row.key in state.tables.workflows else Insert(row))
        stored[row.key] = row.registered_at
    changes += _forgotten(stored)
    return Decision(WorkflowsRegistered(registered=len(written)), tuple(changes))


def _is_object(text: str) -> bool:
    try:
        return isinstance(parse(text), dict)
    except (ValueError, RecursionError):
        return False


def _search(command: WorkflowRegister) -> RegisteredWorkflows:
    return RegisteredWorkflows(
        command.namespace, tuple((one.workflow, one.version) for one in command.workflows)
    )


def _kept(rows: Sequence[WorkflowRow]) -> list[WorkflowRow]:
    """Return the last versions of each name, as many as are kept. Raises InvalidCommandError for a repeated one."""
    if len({row.key for row in rows}) < len(rows):
        raise InvalidCommandError("workflows has the same version of a workflow twice: send each once")
    later: Counter[str] = Counter()
    kept: list[WorkflowRow] = []
    for row in reversed(rows):
        later[row.name] += 1
        if later[row.name] <= VERSIONS_KEPT:
            kept.append(row)
    return kept[::-1]


def _is_fresh(known: WorkflowRow | None, row: WorkflowRow) -> bool:
    if known is None:
        return False
    is_same = (known.plan, known.schemas) == (row.plan, row.schemas)
    return is_same and row.registered_at - known.registered_at < FRESH


def _forgotten(stored: dict[WorkflowKey, Micros]) -> list[Change]:
    """Return the deletions of the versions that are too many, those that were registered first."""
    versions: dict[str, list[tuple[Micros, WorkflowKey]]] = defaultdict(list)
    for key, at in stored.items():
        versions[key.name].append((at, key))
    return [
        Delete(WORKFLOWS, key)
        for of_name in versions.values()
        for _, key in sorted(of_name, reverse=True)[VERSIONS_KEPT:]
    ]
