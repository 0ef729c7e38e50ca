"""Holdfast's own figures come out, with all that is measured beside them. What others do is not for a test to say."""

import json

import pytest

from tests.benchmarks.peers.__main__ import main
from tests.benchmarks.peers.environments import HOLDFAST, PEERS, program_of, version_of
from tests.benchmarks.peers.rows import rows

pytestmark = [pytest.mark.slow, pytest.mark.service]


def test_every_row_is_measured_and_in_the_table(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--who", HOLDFAST, "--share", "0.01", "--postgres-url", postgres_url]) == 0

    out, err = capsys.readouterr()
    results = [json.loads(line) for line in out.splitlines()]
    assert [one["row"] for one in results] == [row.name for row in rows()]
    for one in results:
        assert one["value"] > 0
        assert one["failed"] == ""
        assert {"python_ms", "writes", "wal_bytes", "bytes"} <= one.keys()
        assert f"| {one['row']}, {one['unit']} |" in err


def test_everybody_has_a_program_and_a_version() -> None:
    for peer in PEERS:
        assert program_of(peer).exists()
        assert version_of(peer).count(".") == 2
