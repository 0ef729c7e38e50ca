"""The benchmarks of the server work: each figure is measured. Its size is not tested."""

import json

import pytest

from tests.benchmarks.server.__main__ import GROUPS, PEERS, TINY, main
from tests.sizes import only_full

pytestmark = [pytest.mark.slow, pytest.mark.service]


@only_full
def test_every_figure_of_the_server_is_printed(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    ours = [argument for group in GROUPS if group != PEERS for argument in ("--only", group)]
    assert main(["--postgres-url", postgres_url, *ours], TINY) == 0

    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 73
    assert len({row["name"] for row in rows}) == 73
    for row in rows:
        assert set(row) == {"name", "value", "unit", "goal", "about"}
        assert row["value"] > 0 or row["unit"] in {
            "transactions/s",
            "kB each",
            "% of throughput",
        }  # of so few, and so short
        assert row["name"] in err
