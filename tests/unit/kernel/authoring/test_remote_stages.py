"""`@stage(remote=True)`: a declaration of a stage, and where it is refused."""

import asyncio
from typing import cast

import pytest

from holdfast import Engine, Pipeline, Retry, StageContext, stage, suspend
from holdfast.errors import DefinitionError, InvalidOverrideError, RunFailedError
from holdfast.kernel.authoring.external import Suspended
from holdfast.kernel.authoring.stage_overrides import stage_overrides
from holdfast.testing import World


@stage(remote=True, queue="tools", retry=Retry(give_up_on=(KeyError,), wait=0))
def draw(text: str) -> str: ...  # type: ignore[empty-body]


PICTURES = Pipeline("pictures", input=list[str]).map(draw)


def test_the_plan_says_that_it_is_remote() -> None:
    node = PICTURES.plan().node("draw")
    assert PICTURES.plan().to_json().count('"remote":{"give_up_on":["KeyError"]}') == 1
    assert "remote" not in Pipeline("p", input=str).pipe(draw.options(remote=False)).plan().to_json()
    assert node.name == "draw"


def test_what_remote_workers_cannot_run_is_refused() -> None:
    with pytest.raises(DefinitionError, match="its function is async"):

        @stage(remote=True)
        async def paint(text: str) -> str: ...  # type: ignore[empty-body]

    with pytest.raises(DefinitionError, match="can't be remote"):

        @stage(remote=True).external
        def submit(ctx: StageContext, text: str) -> Suspended[str, str]:
            return suspend(text, check_after=1)

    with pytest.raises(DefinitionError, match="has no remote as a stage"):
        stage(remote=True)(PICTURES)
    with pytest.raises(DefinitionError, match="remote is 5; it must be True or False"):
        stage(remote=cast("bool", 5))

    async def call() -> str:
        return await draw("house")

    with pytest.raises(RuntimeError, match="only remote workers run it"):
        asyncio.run(call())


def test_two_remote_stages_of_one_name_are_refused() -> None:
    @stage(name="draw", remote=True)
    def other(text: str) -> str: ...  # type: ignore[empty-body]

    again = Pipeline("again", input=str).pipe(draw.options(queue="other"))
    with Engine.open("memory://", workflows=[PICTURES, again]).sync:
        pass
    with pytest.raises(DefinitionError, match="two remote stages are called 'draw'"):
        Engine.open("memory://", workflows=[PICTURES, Pipeline("p", input=str).pipe(other)])


def test_one_run_cannot_change_where_the_code_is() -> None:
    near = Pipeline("near", input=str).pipe(draw.options(remote=False))
    with pytest.raises(InvalidOverrideError, match="can't change remote"):
        stage_overrides(near, [draw])
    assert stage_overrides(PICTURES, [draw.options(queue="other")])[0].queue == "other"


def test_a_world_runs_its_stub() -> None:
    with World([PICTURES]) as world:
        world.stub(draw).does(str.upper)
        assert world.run(PICTURES(["a", "b"])) == ["A", "B"]
    with World([PICTURES]) as world, pytest.raises(RunFailedError, match="stub it"):
        world.run(PICTURES(["a"]))
