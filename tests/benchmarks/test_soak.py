"""A soak of more than a minute: values that do not depend on the machine stay constant."""

import pytest

from tests.benchmarks.sites import postgres_store
from tests.benchmarks.soak import soak
from tests.sizes import only_full

pytestmark = [pytest.mark.slow, pytest.mark.service]

SECONDS = 80.0
DEAD_SECONDS = 45
"""Maximum age in seconds of work whose dead rows remain; vacuum runs every ten seconds."""
ROWS_OF_RUN = 2
"""Dead job rows per run: the queued one and the leased one."""
MEGABYTES = 25


@only_full
def test_at_half_of_its_rate_a_worker_keeps_no_more_files_rows_or_memory() -> None:
    with postgres_store(None) as store, store.site(counted=False) as site:
        soaked = soak(site.url, [store.about], seconds=SECONDS, look_every=2.0, find=8.0)

    beats = soaked.samples
    early, late = beats[len(beats) // 4 : len(beats) // 2], beats[-len(beats) // 4 :]
    # What it may need at times: a connection more, or a file for a moment.
    assert max(one.files for one in late) <= max(one.files for one in early) + 3
    assert min(one.dead for one in late) <= soaked.given * ROWS_OF_RUN * DEAD_SECONDS
    assert late[-1].memory - early[0].memory < MEGABYTES
    assert late[-1].open < soaked.given * 10
