"""How many processors a process may use."""

import os
from pathlib import Path

import pytest

from holdfast.hosts.supervisor.processors import available_processors

HERE = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ("max 100000", HERE),
        ("50000 100000", 1),
        ("100000 100000", 1),
        ("100000000 100000", HERE),
        ("100000 0", HERE),
        ("nonsense", HERE),
        ("", HERE),
    ],
)
def test_the_limit_of_a_container_counts_if_it_is_lower(tmp_path: Path, limit: str, found: int) -> None:
    (tmp_path / "cpu.max").write_text(limit)
    assert available_processors(tmp_path / "cpu.max") == found


def test_without_a_container_there_is_no_limit(tmp_path: Path) -> None:
    assert available_processors(tmp_path / "missing") == HERE
