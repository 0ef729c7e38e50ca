"""A server, as commands see it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, cast

import attrs
from typing_extensions import TypeVar

from holdfast.hosts.cli.backends import RunCounts
from holdfast.hosts.client.bulk_actions import Action, BulkResult
from holdfast.hosts.http.bulk_operations import ActionName
from holdfast.hosts.http_client.sync_client import SyncClient
from holdfast.hosts.http_client.sync_run_handle import SyncRemoteRunHandle
from holdfast.hosts.inspection.bounds import HISTORY_ROWS_MAX
from holdfast.hosts.inspection.filters import FilterOptions
from holdfast.hosts.inspection.run_details import RunDetails
from holdfast.hosts.inspection.schedules import ScheduleReasons
from holdfast.hosts.inspection.why import RunReasons, WaitReason
from holdfast.hosts.inspection.workflows import WorkflowInfo
from holdfast.hosts.text import format_instant
from holdfast.kernel.commands import Command, RunRerunFrom
from holdfast.kernel.commands.codec import command_data, from_data
from holdfast.kernel.rules.registry import reply_type
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.ports.clock import micros
from holdfast.ports.errors import CommandError
from holdfast.ports.json import compact

R = TypeVar("R")

_INSTANT: Final = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")
_CLOCKS_DIFFER: Final = timedelta(seconds=1)
"""How far the clock of a server may be behind, for what may not be in its future."""


@attrs.frozen
class ServerBackend:
    """A server. See `Backend`."""

    client: SyncClient

    @property
    def api(self) -> SyncClient:
        """See `Backend`."""
        return self.client

    @property
    def is_server(self) -> bool:
        """See `Backend`."""
        return True

    @property
    def namespace(self) -> str:
        """See `Backend`."""
        return self.client.namespace

    def now(self) -> datetime:
        """See `Backend`."""
        return datetime.now(UTC)

    def trusted_now(self) -> datetime:
        """See `Backend`."""
        return self.now() - _CLOCKS_DIFFER

    def run(self, run_id: str) -> SyncRemoteRunHandle[object]:
        """See `Backend`."""
        return self.client.handle(run_id)

    def dispatch(self, command: Command[R]) -> R:
        """See `Backend`."""
        (found,) = self.client.dispatch([command_data(command)])
        if isinstance(found, CommandError):
            raise found
        kind = cast("type[R]", reply_type(type(command)))
        return from_data(found, kind)

    def details(self, run_id: str, generation: int | None, *, history: bool, log: bool) -> RunDetails:
        """See `Backend`."""
        run = self.client.handle(run_id)
        details = run.details(generation=generation)
        if history:
            events = run.history(limit=HISTORY_ROWS_MAX, generation=details.generation)
            details = attrs.evolve(details, history=tuple(events))
        return attrs.evolve(details, log=tuple(run.logs())) if log else details

    def input_text(self, run_id: str, generation: int | None) -> str:
        """See `Backend`."""
        return compact(self.client.handle(run_id).input(generation=generation))

    def result_text(self, run_id: str, generation: int) -> str:
        """See `Backend`."""
        return compact(self.client.handle(run_id).outcome(generation=generation).result)

    def preview(self, command: RunRerunFrom) -> RerunPreview:
        """See `Backend`."""
        run = self.client.handle(command.run_id)
        return run.preview_rerun(command.stage, row=command.row, version=command.version)

    def count_all(self, action: Action, which: FilterOptions) -> RunCounts:
        """See `Backend`."""
        found = self.client.preview_all(_action_name(action), **_conditions(action, which))
        return RunCounts(found.by_status, found.more)

    def act_on_all(
        self,
        action: Action,
        which: FilterOptions,
        *,
        reason: str,
        stage: str | None,
        version: str | None,
        limit: int | None,
        on_page: Callable[[BulkResult], None],
    ) -> BulkResult:
        """See `Backend`."""
        found = _conditions(action, which)
        match _action_name(action):
            case "cancel":
                result = self.client.cancel_all(reason=reason, limit=limit, **found)
            case "terminate":
                result = self.client.terminate_all(reason=reason, limit=limit, **found)
            case "pause":
                result = self.client.pause_all(reason=reason, limit=limit, **found)
            case "resume":
                result = self.client.resume_all(reason=reason, limit=limit, **found)
            case "remove":
                result = self.client.remove_all(limit=limit, **found)
            case _:  # rerun
                result = self.client.rerun_all(stage, version=version, reason=reason, limit=limit, **found)
        on_page(result)
        return result

    def reasons(self, run_id: str, zone: tzinfo | None) -> RunReasons:
        """See `Backend`."""
        found = self.client.handle(run_id).reasons()
        return attrs.evolve(found, reasons=_in_zone(found.reasons, zone))

    def schedule_reasons(self, name: str, zone: tzinfo | None) -> ScheduleReasons:
        """See `Backend`."""
        found = self.client.schedule(name).reasons()
        return attrs.evolve(found, reasons=_in_zone(found.reasons, zone))

    def check_message(self, run_id: str, channel: str, text: str) -> None:
        """See `Backend`."""

    def workflows(self, name: str, after: str | None, limit: int) -> tuple[WorkflowInfo, ...]:
        """See `Backend`."""
        return self.client.workflows(name=name, after=after, limit=limit)


def _in_zone(reasons: tuple[WaitReason, ...], zone: tzinfo | None) -> tuple[WaitReason, ...]:
    """Return reasons with the instants in their texts in a time zone, the local one if None."""

    def there(found: re.Match[str]) -> str:
        return format_instant(micros(datetime.fromisoformat(found[0])), zone)

    return tuple(attrs.evolve(one, text=_INSTANT.sub(there, one.text)) for one in reasons)


def _action_name(action: Action) -> ActionName:
    return cast("ActionName", {"run again": "rerun"}.get(action.name, action.name))


def _conditions(action: Action, which: FilterOptions) -> FilterOptions:
    """Return the filters, of which the server needs one: without any, those runs are meant that allow the action."""
    # An empty text is a filter too, which is refused: it may be a variable of a shell that was meant to have a value.
    if any(value is not None and value is not False for value in which.values()):
        return which
    return FilterOptions(status=action.default_statuses)
