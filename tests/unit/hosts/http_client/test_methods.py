"""The client of a server has the methods of the engine, and is the same for sync and async code."""

import inspect
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.client import SyncKeys, SyncLimits, SyncNamespaces, SyncScheduleHandle
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.http_client.administration import RemoteKeys, RemoteLimits, RemoteNamespaces
from holdfast.hosts.http_client.sync_administration import (
    SyncRemoteKeys,
    SyncRemoteLimits,
    SyncRemoteNamespaces,
)
from holdfast.remote import (
    Client,
    RemoteRunHandle,
    RemoteScheduleHandle,
    SyncClient,
    SyncRemoteRunHandle,
    SyncRemoteScheduleHandle,
)
from tools import sync_client

PAIRS = (
    (SyncEngine, SyncClient, Client),
    (SyncRunHandle, SyncRemoteRunHandle, RemoteRunHandle),
    (SyncScheduleHandle, SyncRemoteScheduleHandle, RemoteScheduleHandle),
    (SyncLimits, SyncRemoteLimits, RemoteLimits),
    (SyncKeys, SyncRemoteKeys, RemoteKeys),
    (SyncNamespaces, SyncRemoteNamespaces, RemoteNamespaces),
)
NOT_OVER_HTTP: Mapping[type, frozenset[str]] = {
    SyncEngine: frozenset(
        {
            *("acting_as", "kernel", "core"),  # the owner of the key acts; the rest is in the server
            *(
                "apply_schedules",
                "apply_triggers",
                "check_upgrade",
                "create_schedule",
                "flush",
            ),  # they need the user's code
            "doctor",
            *("within", "submit_update_with_start"),
        }
    ),
    SyncRunHandle: frozenset(
        {
            *("core", "log_reader", "output", "row", "submit_update"),  # parts of hosts
            *("steps", "export_history", "message"),  # steps are in `details`
            "published_reader",
        }
    ),
    SyncScheduleHandle: frozenset({"update"}),  # it takes a schedule of the user's code
}
"""Methods of the engine that have no operation over HTTP yet, or never."""
OTHER_PARAMETERS: Mapping[str, frozenset[str]] = {
    "annotations": frozenset({"options"}),
    "annotate": frozenset({"options"}),
    "start": frozenset({"call", "options"}),
    "run": frozenset({"call", "options"}),
    "handle": frozenset({"workflow", "id"}),
    "result_of": frozenset({"type"}),
}
"""Parameters that are others, since a name and JSON are taken too."""


def methods(kind: type) -> dict[str, dict[str, inspect.Parameter]]:
    return {
        name: dict(inspect.signature(found).parameters)
        for name, found in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("engine", "remote", "_"), PAIRS, ids=lambda one: one.__name__)
def test_each_method_of_the_engine_is_there_with_its_parameters(engine: type, remote: type, _: type) -> None:
    there = methods(remote)
    left_out = NOT_OVER_HTTP.get(engine, frozenset())

    for name, parameters in methods(engine).items():
        if name in left_out:
            assert name not in there, f"{name} is over HTTP: take it from the list"
            continue
        assert name in there, f"{remote.__name__} has no {name}"
        # Who acts is the owner of the key.
        for one in parameters.keys() - {"actor"} - OTHER_PARAMETERS.get(name, frozenset()):
            assert one in there[name], f"{remote.__name__}.{name} has no {one}"
            assert there[name][one].kind is parameters[one].kind, f"{name}: {one}"
            assert there[name][one].default == parameters[one].default, f"{name}: {one}"


@pytest.mark.parametrize(("_", "sync", "async_"), PAIRS, ids=lambda one: one.__name__)
def test_the_sync_and_the_async_client_have_the_same_methods(_: type, sync: type, async_: type) -> None:
    assert {name: list(one) for name, one in methods(sync).items()} == {
        name: list(one) for name, one in methods(async_).items()
    }
    assert not [name for name, one in inspect.getmembers(sync) if inspect.iscoroutinefunction(one)]


@pytest.mark.slow
def test_the_sync_modules_are_what_the_async_ones_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / sync_client.FOLDER
    shutil.copytree(sync_client.ROOT / sync_client.FOLDER, folder)
    shutil.copy(sync_client.ROOT / "pyproject.toml", tmp_path)
    monkeypatch.setattr(sync_client, "ROOT", tmp_path)
    monkeypatch.setattr(sync_client, "MODULES", ("server",))  # `make check` compares all of them
    assert sync_client.main(["--check"]) == 0

    (folder / "sync_server.py").write_text("# changed\n")

    assert sync_client.main(["--check"]) == 1
    assert sync_client.main([]) == 0
    assert "class SyncServer:" in (folder / "sync_server.py").read_text()
