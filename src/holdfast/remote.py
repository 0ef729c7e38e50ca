"""Programs that reach a server with an API key in place of the database: clients and workers.

`SyncClient(url, key="hf_...").start("report", {"days": 7})` needs the extra `client`; `Client` is the same for async
code. `RemoteWorker(url, key, steps=[embed]).run()` runs queued steps.
"""

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
