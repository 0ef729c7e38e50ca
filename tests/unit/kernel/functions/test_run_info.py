"""What a function knows about its run at each row of its history."""

import pytest

from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.run_info import run_info
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.protocol import FunctionReturned, Row, StepCompleted
from tests.unit.kernel.functions.player import BEGAN_AT, new_machine


@step
async def fetch() -> int:
    raise AssertionError("the test records its result")


@workflow
async def looks() -> tuple[int, bool]:
    await fetch()
    info = run_info()
    return info.history_rows, info.should_continue_as_new


@pytest.mark.parametrize(("row", "is_long"), [(2, False), (9_999, False), (10_000, True), (49_999, True)])
def test_a_function_is_advised_to_continue_as_new_from_ten_thousand_rows_on(
    row: int, *, is_long: bool
) -> None:
    machine = new_machine(looks())
    (request,) = machine.begin().requests
    event = StepCompleted(call=request.call, step="fetch", output="1")
    turn = machine.feed(Row(number=row, at=BEGAN_AT, event=event))
    assert turn.ended == FunctionReturned(f"[{row},{str(is_long).lower()}]")
