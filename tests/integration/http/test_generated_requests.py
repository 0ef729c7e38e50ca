"""Generated requests, sent to a server that runs: see `tests.fuzz_server`."""

from pathlib import Path

import pytest

from tests.fuzz_server import fuzz


@pytest.mark.slow
def test_no_generated_request_is_answered_with_anything_undocumented(tmp_path: Path) -> None:
    outcome = fuzz(tmp_path, cases=1, seed=1)
    assert outcome.is_good, outcome.text()
    assert outcome.phases == {"coverage", "fuzzing", "stateful"}
