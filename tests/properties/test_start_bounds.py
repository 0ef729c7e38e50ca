"""Random starts, admissions and ends of runs of one key, against a list that is kept in the plainest way."""

from typing import Literal

import attrs
import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from typing_extensions import override

from holdfast.kernel.commands import RunCancel, RunClaimPending, RunCreate, RunCreated, RunTerminate
from holdfast.ports.errors import ConcurrencyFullError
from holdfast.ports.records.limits import WhenFull
from holdfast.ports.records.run import TERMINAL
from tests.unit.kernel.world import World, payload, pipeline, stage

FUNCTION = pipeline(attrs.evolve(stage("w"), function=True))
State = Literal["waits", "under way", "ending"]
_FULL = st.sampled_from([full for full in WhenFull if full is not WhenFull.WAIT])


class Model:
    """The open runs of the key, oldest first, each with its state."""

    def __init__(self) -> None:
        self.runs: dict[str, State] = {}

    def start(self, name: str, most: int, full: WhenFull) -> str:
        """Say what the start does, and do it."""
        ended: list[str] = []
        while len(counting := [run for run, state in self.runs.items() if state != "ending"]) >= most:
            if full is WhenFull.REFUSE:
                return "refused"
            if full is WhenFull.RETURN:
                return f"returned {counting[-1]}"
            under_way = [run for run in counting if self.runs[run] == "under way"]
            waiting = [run for run in counting if self.runs[run] == "waits"]
            if full is not WhenFull.REPLACE and under_way:
                oldest = under_way[0]
            elif waiting:
                oldest = waiting[0]
            else:
                break
            if full is WhenFull.CANCEL and self.runs[oldest] == "under way":
                self.runs[oldest] = "ending"
            else:
                del self.runs[oldest]
            ended.append(oldest)
        self.runs[name] = "waits"
        return f"stored, ended {ended}"

    def admit(self, limit: int) -> None:
        """Admit the oldest that wait, while there is a slot."""
        for name in [name for name, state in self.runs.items() if state == "waits"]:
            if sum(state != "waits" for state in self.runs.values()) < limit:
                self.runs[name] = "under way"


class Starts(RuleBasedStateMachine):
    """The kernel beside the model. The limit is the same for all runs; what a start does is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(FUNCTION)
        self.model = Model()
        self.number = 0

    @rule(full=_FULL, waiting=st.integers(1, 3), batch=st.integers(1, 4))
    def start(self, full: WhenFull, waiting: int, batch: int) -> None:
        """Start several runs in one batch."""
        self.world.wait(1)
        names = [f"r{self.number + n:03}" for n in range(batch)]
        self.number += batch
        commands = [
            RunCreate(
                workflow="w",
                id=name,
                input=payload(0),
                concurrency_key="k",
                concurrency_limit=2,
                concurrency_waiting=waiting,
                concurrency_full=full,
            )
            for name in names
        ]
        answers = [_text_of(answer) for answer in self.world.send(*commands)]
        expected = [self.model.start(name, 2 + waiting, full) for name in names]
        event(expected[-1].split()[0])
        assert answers == expected

    @rule()
    def admit(self) -> None:
        """Admit what can be admitted."""
        self.world.do(RunClaimPending(keys=("k",)))
        self.model.admit(2)

    @rule(which=st.integers(0, 9), gently=st.booleans())
    def end(self, which: int, gently: bool) -> None:
        """Cancel or terminate a run."""
        if not self.model.runs:
            return
        name = list(self.model.runs)[which % len(self.model.runs)]
        self.world.do(RunCancel(run_id=name) if gently else RunTerminate(run_id=name))
        if gently and self.model.runs[name] != "waits":
            self.model.runs[name] = "ending"
        else:
            del self.model.runs[name]

    @invariant()
    def same(self) -> None:
        """The runs are those of the model, in their states."""
        found: dict[str, str] = {}
        for run in self.world.tables().runs.values():
            if run.status not in TERMINAL:
                found[run.id] = "ending" if run.is_ending else "under way" if run.has_slot else "waits"
        assert found == self.model.runs

    @override
    def teardown(self) -> None:
        """Nothing is left open."""


def _text_of(answer: object) -> str:
    if isinstance(answer, ConcurrencyFullError):
        return "refused"
    assert isinstance(answer, RunCreated)
    return f"stored, ended {list(answer.ended)}" if answer.created else f"returned {answer.run_id}"


@pytest.mark.slow
def test_starts_do_what_the_model_says() -> None:
    run_state_machine_as_test(
        Starts,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
