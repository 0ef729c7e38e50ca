"""Programs that reach a server with an API key in place of the database: clients and workers.

`SyncClient(url, key="hf_...").start("report", {"days": 7})` needs the extra `client`; `Client` is the same for async
code. `RemoteWorker(url, key, steps=[embed]).run()` runs queued steps. Each name is imported at its first
use, so a worker of queued steps loads no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.hosts.http.run_events import GenerationStarted, RunEnded
    from holdfast.hosts.http_client.client import Client
    from holdfast.hosts.http_client.run_handle import RemoteRunHandle
    from holdfast.hosts.http_client.schedule_handle import RemoteScheduleHandle
    from holdfast.hosts.http_client.starts import RemoteStartAllOptions, RemoteStartOptions
    from holdfast.hosts.http_client.sync_client import SyncClient
    from holdfast.hosts.http_client.sync_run_handle import SyncRemoteRunHandle
    from holdfast.hosts.http_client.sync_schedule_handle import SyncRemoteScheduleHandle
    from holdfast.hosts.remote.worker import RemoteWorker

__all__ = [
    "Client",
    "GenerationStarted",
    "RemoteRunHandle",
    "RemoteScheduleHandle",
    "RemoteStartAllOptions",
    "RemoteStartOptions",
    "RemoteWorker",
    "RunEnded",
    "SyncClient",
    "SyncRemoteRunHandle",
    "SyncRemoteScheduleHandle",
]

_MODULES: Final = {
    name: module
    for module, names in {
        "holdfast.hosts.http.run_events": (
            "GenerationStarted",
            "RunEnded",
        ),
        "holdfast.hosts.http_client.client": ("Client",),
        "holdfast.hosts.http_client.run_handle": ("RemoteRunHandle",),
        "holdfast.hosts.http_client.schedule_handle": ("RemoteScheduleHandle",),
        "holdfast.hosts.http_client.starts": (
            "RemoteStartAllOptions",
            "RemoteStartOptions",
        ),
        "holdfast.hosts.http_client.sync_client": ("SyncClient",),
        "holdfast.hosts.http_client.sync_run_handle": ("SyncRemoteRunHandle",),
        "holdfast.hosts.http_client.sync_schedule_handle": ("SyncRemoteScheduleHandle",),
        "holdfast.hosts.remote.worker": ("RemoteWorker",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> object:
    home = _MODULES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
