"""The benchmarks work: each figure is measured, with its floor. Its size is not tested."""

import json
import math
from typing import Any

import pytest

from tests.benchmarks.__main__ import TINY, cases, main
from tests.sizes import only_full

pytestmark = [pytest.mark.slow, pytest.mark.service]

UNITS = {"runs/s", "stages/s", "steps/s", "items/s", "messages/s", "ms", "cpu ms/min"}
COSTS = {"items", "python_cpu_ms"}


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], str]:
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], err


@only_full
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_figure_is_printed_as_a_line_of_json_beside_its_floor(
    store: str, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--quick", "--store", store, "--postgres-url", postgres_url], TINY) == 0

    figures, err = printed(capsys)

    assert [figure["name"] for figure in figures] == [case.name for case in cases(TINY)]
    for figure in figures:
        assert set(figure) == {"name", "store", "value", "unit", "floor", "ratio", "extras"}
        assert figure["store"] == store
        assert figure["unit"] in UNITS
        assert figure["value"] > 0
        assert figure["floor"] > 0
        assert math.isclose(figure["ratio"], figure["value"] / figure["floor"], rel_tol=0.01)
        extras = figure["extras"]
        costs = COSTS | ({"calls"} if figure["unit"] == "cpu ms/min" else {"bytes"})
        assert set(extras) >= costs | {f"floor_{name}" for name in costs}
        if figure["unit"] == "ms":
            assert 0 < extras["p50_ms"] <= extras["p95_ms"] <= extras["p99_ms"]
        else:
            assert extras["spread"] == [figure["value"]]
        if store == "postgres":
            assert extras["commits"] > 0
            # Nothing need be written in a second of doing nothing, nothing is when only the past is read, and of a long
            # run the two steps that are measured here may be over by then.
            may_write_nothing = "calls" in extras or figure["name"] in {"replay", "steps_of_long_run"}
            assert extras["wal_bytes"] > 0 or may_write_nothing
        assert figure["name"] in err


def test_one_figure_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--store", "sqlite", "--only", "drain"], TINY) == 0

    figures, _ = printed(capsys)

    assert [(figure["name"], figure["store"]) for figure in figures] == [("drain", "sqlite")]


def test_an_unknown_figure_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "nothing"], TINY)

    assert "create_singly" in printed_error(capsys)


def printed_error(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err
