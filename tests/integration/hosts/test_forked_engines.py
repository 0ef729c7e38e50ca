"""An engine that was used before a fork works in the children too: programs that really fork."""

import subprocess
import sys
from pathlib import Path

import pytest

CHILDREN = 8

REFUSED = """
import os, sys
from holdfast import Engine, workflow
from holdfast.ports.errors import ForkedStoreError

@workflow
async def nothing() -> None: ...

engine = Engine.open(sys.argv[1], workflows=[nothing])
engine.sync.start(nothing())
def fork() -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        engine.sync.start(nothing())
    except ForkedStoreError as error:
        print(error, flush=True)
        os._exit(0)
    finally:
        os._exit(1)

if sys.argv[2] == "in a transaction":
    with engine.core.stores.persistence._database.shared(5):
        code = fork()
else:
    code = fork()
engine.sync.start(nothing())
sys.exit(code)
"""

WHILE_STARTS_ARE_SENT = """
import os, signal, sys, threading
from holdfast import Engine, workflow
from holdfast.hosts.client.start_batcher import TRANSACTIONS_MAX
from holdfast.kernel.dispatch.kernel import Kernel

@workflow
async def nothing() -> None: ...

runs = Engine.open(sys.argv[1], workflows=[nothing]).sync
runs.start(nothing())
sent, go_on = threading.Semaphore(0), threading.Event()
dispatch_many = Kernel.dispatch_many

def held(kernel, commands):
    if threading.current_thread() in starters:
        sent.release()
        go_on.wait(30)
    return dispatch_many(kernel, commands)

Kernel.dispatch_many = held
# As many as are sent at once: another start waits for one of them.
starters = [threading.Thread(target=lambda: runs.start(nothing())) for _ in range(TRANSACTIONS_MAX)]
for starter in starters:
    starter.start()
    assert sent.acquire(timeout=10)
child = os.fork()
if not child:
    signal.alarm(5)  # kills a child that waits for a thread of its parent
    runs.start(nothing())
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go_on.set()
for starter in starters:
    starter.join()
assert len(list(runs.runs())) == 1 + TRANSACTIONS_MAX + (code == 0)
sys.exit(code)
"""


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.slow
def test_a_child_waits_for_no_start_that_its_parent_is_sending(tmp_path: Path) -> None:
    _run("-c", WHILE_STARTS_ARE_SENT, f"sqlite:///{tmp_path}/runs.db")


@pytest.mark.slow
def test_children_use_the_engine_that_their_parent_goes_on_using(url: str, namespace: str) -> None:
    if url == "memory://":
        pytest.skip("it lives in one process")
    out = _run("-m", "tests.integration.hosts.forking_program", url, namespace, str(CHILDREN))
    runs, completed = [int(word) for word in out.split() if word.isdigit()]
    assert runs == completed >= 2 + 3 * CHILDREN


@pytest.mark.slow
def test_a_child_of_a_process_that_used_memory_is_refused() -> None:
    assert "visible nowhere else" in _run("-c", REFUSED, "memory://", "-")


@pytest.mark.slow
def test_a_child_that_was_forked_in_a_transaction_of_sqlite_is_refused(tmp_path: Path) -> None:
    out = _run("-c", REFUSED, f"sqlite:///{tmp_path}/runs.db", "in a transaction")
    assert "in the middle of a transaction" in out
