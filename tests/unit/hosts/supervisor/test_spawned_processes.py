"""Worker processes of the system."""

import gc
from pathlib import Path

import pytest

from holdfast.hosts.supervisor.spawned_processes import SpawnedProcess


def test_a_process_that_can_not_start_leaves_no_socket_open(tmp_path: Path) -> None:
    """An open socket would end this test with a ResourceWarning."""
    with pytest.raises(FileNotFoundError):
        SpawnedProcess(lambda _: [str(tmp_path / "missing")])
    gc.collect()
