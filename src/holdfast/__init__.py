"""Durable workflows for Python: programs that survive crashes, restarts, deploys and lost messages.

The names that most programs need. More are in `holdfast.client`, `holdfast.workflows`, `holdfast.errors`,
`holdfast.plugins`, `holdfast.serverless`, `holdfast.http`, `holdfast.remote` and `holdfast.testing`. Each name is
imported at its first use, so that a program loads only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.hosts.client.engine import Engine
    from holdfast.hosts.client.run_handle import RunHandle
    from holdfast.hosts.client.sync_engine import SyncEngine
    from holdfast.hosts.client.sync_run_handle import SyncRunHandle
    from holdfast.hosts.serverless.host import ServerlessHost
    from holdfast.hosts.worker.worker import Worker
    from holdfast.kernel.authoring.channels import Channel, select
    from holdfast.kernel.authoring.child_runs import start_child
    from holdfast.kernel.authoring.concurrency import Concurrency
    from holdfast.kernel.authoring.continue_as_new import continue_as_new
    from holdfast.kernel.authoring.decorators import each, stage
    from holdfast.kernel.authoring.external import NotReady, Suspended, completed, suspend
    from holdfast.kernel.authoring.functions import (
        compensate_with,
        now,
        patched,
        random,
        scheduled,
        side_effect,
        sleep,
        sleep_until,
        uuid4,
        workflow,
    )
    from holdfast.kernel.authoring.gather import Gather
    from holdfast.kernel.authoring.options import Fair, Rate, Retry, Slots
    from holdfast.kernel.authoring.pipelines import Pipeline
    from holdfast.kernel.authoring.publications import publish
    from holdfast.kernel.authoring.queries import expose, query, update
    from holdfast.kernel.authoring.schedules import Schedule
    from holdfast.kernel.authoring.stage_context import StageContext
    from holdfast.kernel.authoring.step_context import step_context
    from holdfast.kernel.authoring.steps import step
    from holdfast.kernel.authoring.topics import Topic
    from holdfast.kernel.authoring.triggers import Trigger
    from holdfast.kernel.authoring.workflow_context import workflow_context
    from holdfast.kernel.calendars.specs import Cron, Every
    from holdfast.ports.errors import GiveUp, HoldfastError, RetryAfter

__all__ = [
    "Channel",
    "Concurrency",
    "Cron",
    "Engine",
    "Every",
    "Fair",
    "Gather",
    "GiveUp",
    "HoldfastError",
    "NotReady",
    "Pipeline",
    "Rate",
    "Retry",
    "RetryAfter",
    "RunHandle",
    "Schedule",
    "ServerlessHost",
    "Slots",
    "StageContext",
    "Suspended",
    "SyncEngine",
    "SyncRunHandle",
    "Topic",
    "Trigger",
    "Worker",
    "compensate_with",
    "completed",
    "continue_as_new",
    "each",
    "expose",
    "now",
    "patched",
    "publish",
    "query",
    "random",
    "scheduled",
    "select",
    "side_effect",
    "sleep",
    "sleep_until",
    "stage",
    "start_child",
    "step",
    "step_context",
    "suspend",
    "update",
    "uuid4",
    "workflow",
    "workflow_context",
]

_MODULES: Final = {
    name: module
    for module, names in {
        "holdfast.hosts.client.engine": ("Engine",),
        "holdfast.hosts.client.run_handle": ("RunHandle",),
        "holdfast.hosts.client.sync_engine": ("SyncEngine",),
        "holdfast.hosts.client.sync_run_handle": ("SyncRunHandle",),
        "holdfast.hosts.serverless.host": ("ServerlessHost",),
        "holdfast.hosts.worker.worker": ("Worker",),
        "holdfast.kernel.authoring.channels": (
            "Channel",
            "select",
        ),
        "holdfast.kernel.authoring.child_runs": ("start_child",),
        "holdfast.kernel.authoring.concurrency": ("Concurrency",),
        "holdfast.kernel.authoring.continue_as_new": ("continue_as_new",),
        "holdfast.kernel.authoring.decorators": (
            "each",
            "stage",
        ),
        "holdfast.kernel.authoring.external": (
            "NotReady",
            "Suspended",
            "completed",
            "suspend",
        ),
        "holdfast.kernel.authoring.functions": (
            "compensate_with",
            "now",
            "patched",
            "random",
            "scheduled",
            "side_effect",
            "sleep",
            "sleep_until",
            "uuid4",
            "workflow",
        ),
        "holdfast.kernel.authoring.gather": ("Gather",),
        "holdfast.kernel.authoring.options": (
            "Fair",
            "Rate",
            "Retry",
            "Slots",
        ),
        "holdfast.kernel.authoring.pipelines": ("Pipeline",),
        "holdfast.kernel.authoring.publications": ("publish",),
        "holdfast.kernel.authoring.queries": (
            "expose",
            "query",
            "update",
        ),
        "holdfast.kernel.authoring.schedules": ("Schedule",),
        "holdfast.kernel.authoring.stage_context": ("StageContext",),
        "holdfast.kernel.authoring.step_context": ("step_context",),
        "holdfast.kernel.authoring.steps": ("step",),
        "holdfast.kernel.authoring.topics": ("Topic",),
        "holdfast.kernel.authoring.triggers": ("Trigger",),
        "holdfast.kernel.authoring.workflow_context": ("workflow_context",),
        "holdfast.kernel.calendars.specs": (
            "Cron",
            "Every",
        ),
        "holdfast.ports.errors": (
            "GiveUp",
            "HoldfastError",
            "RetryAfter",
        ),
    }.items()
    for name in names
}
_PUBLIC_MODULES: Final = (
    "client",
    "workflows",
    "plugins",
    "serverless",
    "http",
    "metrics",
    "remote",
    "errors",
)


def __getattr__(name: str) -> object:
    if name in _PUBLIC_MODULES:
        return import_module(f"{__name__}.{name}")
    home = _MODULES.get(name)
    if home is None:
        others = ", ".join(f"{__name__}.{module}" for module in _PUBLIC_MODULES)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; more names are in {others}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PUBLIC_MODULES})
