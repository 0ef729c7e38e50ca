"""The async client has the methods of the sync one, and its modules are those that the tool generates."""

import inspect
import shutil
from pathlib import Path

import pytest

from holdfast.hosts.client import async_bodies
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.run_handle import RunHandle
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.client.sync_keys import SyncKeys
from holdfast.hosts.client.sync_limits import SyncLimits
from holdfast.hosts.client.sync_namespaces import SyncNamespaces
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.client.sync_schedule_handle import SyncScheduleHandle
from holdfast.hosts.client.sync_transactional_engine import SyncTransactionalEngine
from holdfast.hosts.client.sync_triggers import SyncTriggers
from holdfast.hosts.client.transactional_engine import TransactionalEngine
from holdfast.kernel.authoring.ai import Ai, AsyncAi
from holdfast.kernel.authoring.artifacts import Artifacts, AsyncArtifacts
from holdfast.kernel.authoring.attempt_context import AsyncBlobs, Blobs
from holdfast.kernel.authoring.stage_context import StageAsyncAccess, StageContext
from tools import async_facade
from tools.async_facade import BODIES, FACADES, ROOT, main

ONLY_SYNC = {
    *("core", "log_reader", "output", "published_reader", "row", "submit_update"),
    "submit_update_with_start",
}
"""What hosts call, and users don't."""


def methods(kind: type) -> dict[str, list[inspect.Parameter]]:
    """Return the public methods of a class with their parameters, without annotations."""
    return {
        name: [
            each.replace(annotation=inspect.Parameter.empty)
            for each in inspect.signature(found).parameters.values()
        ]
        for name, found in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.slow
def test_the_generated_modules_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.slow
def test_a_changed_source_is_noticed_until_the_module_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [BODIES, "pyproject.toml", *(path for one in FACADES for path in (one.source, one.target))]
    for path in files:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    monkeypatch.setattr(async_facade, "ROOT", tmp_path)
    source = tmp_path / "hosts/client/sync_engine.py"
    text = source.read_text()
    source.write_text(text.replace("Check external work now", "Poll external work now", 1))

    assert main(["--check"]) == 1
    assert capsys.readouterr().out.startswith("hosts/client/engine_methods.py is not what")
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert "Poll external work now" in (tmp_path / "hosts/client/engine_methods.py").read_text()


@pytest.mark.parametrize(
    ("sync", "async_"),
    [(SyncEngine, Engine), (SyncRunHandle, RunHandle), (SyncTransactionalEngine, TransactionalEngine)],
)
def test_the_async_client_has_the_methods_of_the_sync_one(sync: type, async_: type) -> None:
    expected = {name: given for name, given in methods(sync).items() if name not in ONLY_SYNC}

    assert methods(async_).items() >= expected.items()
    assert {name for name in dir(sync) if name[0] != "_"} - set(dir(async_)) <= ONLY_SYNC


@pytest.mark.parametrize(
    ("sync", "async_"),
    [(Ai, AsyncAi), (Artifacts, AsyncArtifacts), (Blobs, AsyncBlobs)],
)
def test_the_async_access_of_stages_has_the_methods_of_the_sync_one(sync: type, async_: type) -> None:
    assert methods(async_) == methods(sync)


def test_the_methods_that_block_in_stages_have_an_async_one() -> None:
    found = methods(StageAsyncAccess)

    assert found.keys() == {"last_heartbeat", "output_of", "outputs_of"}
    assert methods(StageContext).items() >= found.items()


def test_what_the_tool_treats_specially_exists() -> None:
    by_hand = {
        name
        for name, found in inspect.getmembers(async_bodies, inspect.isfunction)
        if found.__module__ == async_bodies.__name__ and not name.startswith("_")
    }

    assert by_hand <= methods(Engine).keys() | methods(RunHandle).keys()
    for facade, sync in zip(
        FACADES,
        (
            *(SyncEngine, SyncRunHandle, SyncScheduleHandle, SyncTransactionalEngine),
            *(SyncLimits, SyncTriggers, SyncKeys, SyncNamespaces),
        ),
        strict=True,
    ):
        assert facade.immediate | facade.omitted <= methods(sync).keys()
