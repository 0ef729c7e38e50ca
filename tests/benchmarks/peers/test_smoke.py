"""Holdfast's own figures come out, with all that is measured beside them. What others do is not for a test to say."""

import json
from pathlib import Path

import pytest

from tests.benchmarks.peers.__main__ import main
from tests.benchmarks.peers.environments import FLOOR, HOLDFAST, PEERS, program_of, version_of
from tests.benchmarks.peers.results import COSTS, load
from tests.benchmarks.peers.rows import rows
from tests.sizes import only_full

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.mark.parametrize("who", [pytest.param(HOLDFAST, marks=only_full), FLOOR])
def test_every_row_is_measured_and_in_the_table_and_in_the_data(
    who: str, postgres_url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "data.json"
    told = ["--who", who, "--share", "0.01", "--repeats", "1", "--postgres-url", postgres_url]
    assert main([*told, "--data", str(data)]) == 0

    out, err = capsys.readouterr()
    results = [json.loads(line) for line in out.splitlines()]
    mine = [row for row in rows() if who in row.who]
    assert [one["row"] for one in results] == [row.name for row in mine]
    for row, one in zip(mine, results, strict=True):
        assert one["value"] > 0
        assert one["failed"] == ""
        costs = set(COSTS) & one.keys() - {"statements"}
        on_server = {"python_ms", "server_ms", "writes", "wal_bytes", "bytes"}
        of_store = on_server if row.store == "postgres" else {"python_ms", "bytes"}
        assert costs <= of_store if row.has_costs else not costs
        assert {"python_ms", "bytes"} <= costs or not row.has_costs
        assert f"| {one['row']}, {one['unit']} |" in err
    found = load(data)
    assert [(one.row.name, one.who, one.figures["value"]) for one in found.results] == [
        (one["row"], who, one["value"]) for one in results
    ]
    assert found.about.versions.keys() == {who}


def test_everybody_has_a_program_and_a_version() -> None:
    for peer in PEERS:
        assert program_of(peer).exists()
        assert version_of(peer).count(".") == 2
