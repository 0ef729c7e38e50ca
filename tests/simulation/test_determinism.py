"""D1: a simulation is a function of its seed."""

import json
import os
import subprocess
import sys

import pytest

from holdfast.ports.changes import Insert
from holdfast.ports.records.history import HistoryRow
from holdfast.testing.simulation import simulate_seed
from holdfast.testing.simulation.fibers import START
from holdfast.testing.simulation.trace import described
from tests.simulation.chain_scenario import chain

_PROGRAM = """
from holdfast.testing.simulation import simulate_seed
from tests.simulation.chain_scenario import chain
print(*(simulate_seed(seed, chain).hash for seed in range(1, 6)))
"""


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_again() -> None:
    first = [simulate_seed(seed, chain) for seed in range(1, 6)]
    again = [simulate_seed(seed, chain) for seed in range(1, 6)]

    assert [one.hash for one in first] == [one.hash for one in again]
    assert [one.trace for one in first] == [one.trace for one in again]
    assert len({one.hash for one in first}) == 5


@pytest.mark.slow
def test_the_trace_is_the_same_however_strings_hash() -> None:
    hashes = {_hashes_with(number) for number in ("1", "12345")}

    assert len(hashes) == 1
    assert hashes == {" ".join(simulate_seed(seed, chain).hash for seed in range(1, 6))}


def _hashes_with(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_trace_says_nothing_of_the_machine_on_which_a_step_failed() -> None:
    def line(traceback: str) -> str:
        error = {"code": "body_error", "traceback": traceback, "others": [{"traceback": traceback}]}
        data = json.dumps({"attempt": 1, "error": error})
        return described(
            Insert(HistoryRow(run="R" * 26, number=7, type="step.retrying", at=START, data=data))
        )

    assert line("File /here") == line("File /there, line 3")
    assert "body_error" in line("File /here")
