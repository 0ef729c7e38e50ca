"""What programs load: budgets in modules, because each module and class lengthens a cold start."""

import subprocess
import sys

import pytest

COUNT = """
import sys
{program}
print("\\n".join(name for name in sys.modules if name.partition(".")[0] in ("holdfast", "sqlalchemy", "httpx")))
"""


def _loaded(program: str) -> list[str]:
    code = COUNT.format(program=program)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_remote_worker_loads_neither_an_engine_nor_a_client() -> None:
    loaded = _loaded("from holdfast.remote import RemoteWorker")

    parts = (
        "holdfast.hosts.client",
        "holdfast.hosts.http",
        "holdfast.kernel.dispatch",
        "sqlalchemy",
        "httpx",
    )
    assert [name for name in loaded if name.startswith(parts)] == []
    assert len(loaded) <= 185  # 180


@pytest.mark.parametrize(
    "program", ["from holdfast import Engine, Worker", "from holdfast.serverless import queue_handler"]
)
def test_an_engine_loads_no_other_store_and_no_doctor(program: str) -> None:
    loaded = _loaded(program)

    parts = ("holdfast.adapters.memory", "holdfast.kernel.invariants", "holdfast.hosts.maintenance.doctor.d")
    assert [name for name in loaded if name.startswith(parts)] == []
    assert len(loaded) <= 480  # 470


def test_the_code_of_workflows_loads_no_store() -> None:
    loaded = _loaded("from holdfast import step, workflow\nfrom holdfast.workflows import parallel_map")

    assert [name for name in loaded if name.startswith(("holdfast.adapters.memory", "sqlalchemy"))] == []
