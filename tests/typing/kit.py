"""What both type checkers must infer of the test kit."""

from collections.abc import Sequence
from datetime import timedelta
from typing import assert_type

from holdfast import NotReady, StageContext, Suspended, SyncRunHandle, stage, suspend
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.testing import Effects, Simulation, StageCall, StepCall, Stub, World, simulate
from tests.typing import documents as d


@stage.external
def hand_on(ctx: StageContext, page: d.Page) -> Suspended[str, int]:
    return suspend(page.text, check_after=timedelta(hours=1))


@hand_on.check
def handed_on(ctx: StageContext, job: str) -> int | NotReady:
    return len(job)


@handed_on.cancel
def cancelled(ctx: StageContext, job: str) -> None:
    ctx.log(job)


@step
async def weigh(page: d.Page, *, unit: str = "g") -> int:
    return len(page.text + unit)


def heavy(page: d.Page, *, unit: str = "g") -> int:
    return 10


@workflow
async def weighed(page: d.Page) -> int:
    return await weigh(page)


def of_worlds(world: World) -> None:
    assert_type(world.run(d.analyse(d.Document("x"))), d.Report)
    assert_type(world.start(d.analyse(d.Document("x")), id="a"), SyncRunHandle[d.Report])
    assert_type(world.stub(d.summarise), Stub[list[d.Page], d.Summary])
    assert_type(world.stub(handed_on), Stub[d.Page, int | Suspended[str, int]])
    assert_type(world.stub_check(handed_on), Stub[str, int | NotReady])
    assert_type(world.calls(d.summarise), tuple[StageCall[list[d.Page]], ...])
    assert_type(world.calls(d.summarise)[0].input, list[d.Page])
    assert_type(world.checks(handed_on)[0].input, str)
    assert_type(world.stub_cancel(cancelled), Stub[str, None])
    assert_type(world.cancels(cancelled)[0].input, str)
    world.stub(d.summarise).fails(ConnectionError("busy"), times=2).returns(d.Summary("x"))
    world.stub(d.summarise).does(lambda pages: d.Summary(pages[0].text))
    world.stub(d.summarise).returns("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    world.stub(d.summarise).does(len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    world.stub(handed_on).returns("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    world.stub_check(d.summarise)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    world.advance("6")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def of_steps(world: World, page: d.Page) -> None:
    assert_type(world.run(weighed(page)), int)
    assert_type(world.start(weighed(page)), SyncRunHandle[int])
    stub = world.stub(weigh)
    assert_type(stub.calls, tuple[StepCall, ...])
    assert_type(world.calls(weigh), tuple[StepCall, ...])
    stub.fails(ConnectionError("busy"), times=2).returns(3)
    stub.does(heavy, times=1).does(weigh)
    stub.assert_called_once_with(page, unit="kg")
    stub.returns("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stub.does(len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stub.assert_called_once_with("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stub.assert_called_once_with(page, units="kg")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    world.stub(weighed)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def of_async_worlds(world: World) -> None:
    assert_type(await world.aio.run(d.analyse(d.Document("x"))), d.Report)


def of_simulations(effects: Effects) -> None:
    simulation = simulate(
        d.analyse(d.Document("x")), seeds=200, effects=effects, same=lambda report: report.html
    )
    assert_type(simulation, Simulation[d.Report])
    assert_type(simulation.result, d.Report)
    assert_type(effects.happen("x", lambda: 1, key="k"), int)
    several = simulate([d.analyse(d.Document("x"))], meanwhile={timedelta(1): lambda runs: runs[0].cancel()})
    assert_type(several.result, Sequence[d.Report])
    simulate(d.analyse)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
