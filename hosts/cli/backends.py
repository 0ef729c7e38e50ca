"""What a command acts on: the engine of a store, or a server over HTTP.

Most commands call the methods that an engine and the client of a server both have, on `api`. The rest of what they need
is here, once for each.
"""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, cast

import attrs
import click

from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.client.bulk_actions import Action, BulkResult, action_filter, apply_to_all, command_for
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.stored_workflows import check_registered_signal
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.inspection.filters import FilterOptions
from holdfast.hosts.inspection.run_details import RunDetails, read_run
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.inspection.schedules import ScheduleReasons, read_schedule, schedule_reasons
from holdfast.hosts.inspection.values import input_text, result_text
from holdfast.hosts.inspection.why import RunReasons, reasons_of
from holdfast.hosts.inspection.workflows import WorkflowInfo, workflow_infos
from holdfast.kernel.commands import Command, RunRerunFrom
from holdfast.kernel.runs.rerun_preview import RerunPreview, preview_rerun
from holdfast.ports.clock import instant
from holdfast.ports.errors import AccessDeniedError, ServerAnswerError
from holdfast.ports.queries.runs import CountRuns
from holdfast.ports.records.run import RunStatus
from holdfast.ports.urls import shown_url

if TYPE_CHECKING:  # a command on a store need not load what only the client of a server needs
    from holdfast.hosts.http_client.sync_client import SyncClient
    from holdfast.hosts.http_client.sync_run_handle import SyncRemoteRunHandle

R = TypeVar("R")
Api: TypeAlias = "SyncEngine | SyncClient"
Run: TypeAlias = "SyncRunHandle[object] | SyncRemoteRunHandle[object]"

SERVER_VARIABLE: Final = "HOLDFAST_SERVER"
KEY_VARIABLE: Final = "HOLDFAST_KEY"


@attrs.frozen
class RunCounts:
    """How many runs there are."""

    by_status: Mapping[RunStatus, int]
    """Their numbers by status."""
    more: bool = False
    """Whether there are more than were counted."""


class Backend(Protocol):
    """An engine, or a server."""

    @property
    def api(self) -> Api:
        """The engine, or the client of the server."""
        ...

    @property
    def is_server(self) -> bool:
        """Whether it is a server."""
        ...

    @property
    def namespace(self) -> str:
        """The namespace."""
        ...

    def now(self) -> datetime:
        """Return the present."""
        ...

    def trusted_now(self) -> datetime:
        """Return the present, not later than the store's clock."""
        ...

    def run(self, run_id: str) -> Run:
        """Return a handle to a run."""
        ...

    def dispatch(self, command: Command[R]) -> R:
        """Carry out a command."""
        ...

    def details(self, run_id: str, generation: int | None, *, history: bool, log: bool) -> RunDetails:
        """Return a run, with its history and log on request."""
        ...

    def input_text(self, run_id: str, generation: int | None) -> str:
        """Return the input of a run as JSON text."""
        ...

    def result_text(self, run_id: str, generation: int) -> str:
        """Return the result of a run that has completed, as JSON text."""
        ...

    def preview(self, command: RunRerunFrom) -> RerunPreview:
        """Return what a rerun would do."""
        ...

    def count_all(self, action: Action, which: FilterOptions) -> RunCounts:
        """Return how many runs match, of those that allow an action."""
        ...

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
        """Apply an action to all runs that match. `on_page` gets the result after each page, of a server at the end."""
        ...

    def reasons(self, run_id: str, zone: tzinfo | None) -> RunReasons:
        """Return why a run does not proceed. Instants in the texts are in a time zone, the local one if None."""
        ...

    def schedule_reasons(self, name: str, zone: tzinfo | None) -> ScheduleReasons:
        """Return why a schedule waits. Instants in the texts are in a time zone, the local one if None."""
        ...

    def check_message(self, run_id: str, channel: str, text: str) -> None:
        """Raise InvalidValueError for a message that a run's workflow does not take, by what a worker has registered.

        A process with the code of the workflow, and a server, check it when it is sent.
        """
        ...

    def workflows(self, name: str, after: str | None, limit: int) -> tuple[WorkflowInfo, ...]:
        """Return workflows by name and version: at most `limit` after `NAME@VERSION`, of this name unless it is ""."""
        ...


@attrs.frozen
class StoreBackend:
    """The engine of a store."""

    engine: Engine

    @property
    def api(self) -> Api:
        """See `Backend`."""
        return self.engine.sync

    @property
    def is_server(self) -> bool:
        """See `Backend`."""
        return False

    @property
    def namespace(self) -> str:
        """See `Backend`."""
        return self.engine.core.namespace

    def now(self) -> datetime:
        """See `Backend`."""
        core = self.engine.core
        core.connect()
        return core.clock.now()

    def trusted_now(self) -> datetime:
        """See `Backend`."""
        self.engine.core.connect()
        return instant(self.engine.core.trusted_now())

    def run(self, run_id: str) -> Run:
        """See `Backend`."""
        return SyncRunHandle[object](self.engine.client, run_id, object)

    def dispatch(self, command: Command[R]) -> R:
        """See `Backend`."""
        return self.engine.client.dispatch(command)

    def details(self, run_id: str, generation: int | None, *, history: bool, log: bool) -> RunDetails:
        """See `Backend`."""
        core = self.engine.core
        return read_run(core, find_run(core, run_id, generation), history=history, log=log)

    def input_text(self, run_id: str, generation: int | None) -> str:
        """See `Backend`."""
        core = self.engine.core
        return input_text(core, find_run(core, run_id, generation))

    def result_text(self, run_id: str, generation: int) -> str:
        """See `Backend`."""
        core = self.engine.core
        return result_text(core, find_run(core, run_id, generation))

    def preview(self, command: RunRerunFrom) -> RerunPreview:
        """See `Backend`."""
        core = self.engine.core
        return preview_rerun(core.stores.persistence, core.kernel.workflows, command)

    def count_all(self, action: Action, which: FilterOptions) -> RunCounts:
        """See `Backend`."""
        found = action_filter(self.engine.core, action, which, f"{action.name} --all")
        return RunCounts(self.engine.core.stores.persistence.read(CountRuns(found)))

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
        found = action_filter(self.engine.core, action, which, f"{action.name} --all")
        command = command_for(action, reason=reason, stage=stage, version=version)
        return apply_to_all(self.engine.client, action, found, command, limit=limit, on_page=on_page)

    def reasons(self, run_id: str, zone: tzinfo | None) -> RunReasons:
        """See `Backend`."""
        core = self.engine.core
        return reasons_of(core, find_run(core, run_id), zone)

    def schedule_reasons(self, name: str, zone: tzinfo | None) -> ScheduleReasons:
        """See `Backend`."""
        core = self.engine.core
        return schedule_reasons(core, read_schedule(core, name), zone)

    def check_message(self, run_id: str, channel: str, text: str) -> None:
        """See `Backend`."""
        core = self.engine.core
        check_registered_signal(core, find_run(core, run_id), channel, json.loads(text))

    def workflows(self, name: str, after: str | None, limit: int) -> tuple[WorkflowInfo, ...]:
        """See `Backend`."""
        return workflow_infos(self.engine.core, name, after, limit)


def refuse_over_http(what: str) -> click.UsageError:
    """Return the error about a command, or an option, that needs the store."""
    return click.UsageError(
        f"{what} can't go over HTTP: name the store with ENGINE or --url, in place of the server that --server, "
        f"{SERVER_VARIABLE} or the configuration file names"
    )


@contextmanager
def server_backend(
    url: str, key: str | None, namespace: str | None, patience: float | None
) -> Generator[Backend]:
    """Provide a server for a block. CliError if the URL has no server, or if the server needs a key and gets no key."""
    from holdfast.hosts.cli.server_backend import ServerBackend
    from holdfast.hosts.http_client.client import PATIENCE
    from holdfast.hosts.http_client.sync_client import SyncClient

    with SyncClient(
        url,
        key=key,
        namespace=namespace or "default",
        patience=PATIENCE if patience is None else patience,
    ) as client:
        try:
            yield cast("Backend", ServerBackend(client))
        except ServerAnswerError as error:
            if error.status == 404 and not error.server_code:
                message = f"there is no Holdfast server at {shown_url(url)}"
                raise CliError(Exit.USAGE, error.code, message, detail=str(error)) from None
            raise
        except AccessDeniedError as error:
            if key is None:
                detail = f"No key was sent: {KEY_VARIABLE} is not set."
                raise CliError(Exit.DENIED, error.code, str(error), detail=detail) from None
            raise
