"""Channels that a function's code uses, and errors for a sender that knows the code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.channel_discovery import channels_of
from holdfast.kernel.authoring.channels import Channel, select
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.queries import expose, update
from holdfast.kernel.authoring.signals import Signal
from holdfast.ports.errors import (
    DefinitionError,
    IdempotencyConflictError,
    InvalidValueError,
    SignalRefusedError,
    UnknownChannelError,
)
from holdfast.ports.json import parse
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.records.history import HistoryRow


@dataclass(frozen=True)
class Decision:
    approved: bool
    by: str = "nobody"


approval = Channel("approval", Decision)
withdrawal = Channel("withdrawal", str)
DESK = SimpleNamespace(mail=Channel("mail", str))


async def helper() -> Decision | str:
    return await select(approval, withdrawal)


class Chair:
    urgent = Channel("urgent", str)

    async def wait(self) -> str:
        return await self.urgent.receive()


CHAIR = Chair()
LATER = partial(withdrawal.receive, timeout=5)


class Board:
    @update
    async def move(self) -> str:
        return str(await DESK.mail.receive())


@workflow
async def by_helper() -> str:
    return str(await helper())


@workflow
async def by_method() -> str:
    return await CHAIR.wait()


@workflow
async def by_bound_method() -> str:
    return await LATER()


@workflow
async def by_update() -> None:
    expose(Board())


@workflow
async def by_next_generation() -> str:
    return await continue_as_new(by_helper())


@workflow
async def by_closure_in_it() -> str:
    async def wait() -> str:
        return (await approval.receive()).by

    return await wait()


@workflow
async def made_in_it(name: str) -> str:
    return await Channel(f"order-{name}", str).receive()


@workflow
async def imported_in_it() -> str:
    from tests.unit.hosts.client.test_message_checks import withdrawal as imported

    return await imported.receive()


@workflow
async def by_text(name: str) -> str:
    return str(await globals()[name].receive())


class LoudMapping(Mapping[str, Any]):
    """A mapping of the application, such as one that reads its values from a file."""

    def __init__(self, **channels: Channel[str]) -> None:
        self.channels = channels

    @override
    def __getitem__(self, name: str) -> Any:
        raise AssertionError("it was read")

    @override
    def __iter__(self) -> Iterator[str]:
        raise AssertionError("it was iterated over")

    @override
    def __len__(self) -> int:
        raise AssertionError("it was counted")


class LoudList(list[Channel[str]]):
    @override
    def __iter__(self) -> Iterator[Channel[str]]:
        raise AssertionError("it was iterated over")


LOUD_MAPPING = LoudMapping(urgent=Chair.urgent)
LOUD_LIST = LoudList([Chair.urgent])
VIEW = MappingProxyType({"urgent": Chair.urgent})


@workflow
async def by_loud_mapping() -> str:
    return str(await LOUD_MAPPING["urgent"].receive())


@workflow
async def by_loud_list() -> str:
    return await LOUD_LIST[0].receive()


@workflow
async def by_view() -> str:
    return await VIEW["urgent"].receive()


@workflow
async def takes_none() -> None: ...


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (by_helper, {"approval", "withdrawal"}),
        (by_method, {"urgent"}),
        (by_bound_method, {"withdrawal"}),
        (by_update, {"mail"}),
        (by_next_generation, {"approval", "withdrawal"}),
        (by_closure_in_it, {"approval"}),
        (takes_none, set[str]()),
    ],
)
def test_the_channels_that_a_function_can_come_to_are_found(function: Any, names: set[str]) -> None:
    known = channels_of(function.function)
    assert set(known.by_name) == names
    assert known.is_complete


def test_containers_of_the_application_are_not_iterated_over() -> None:
    """That would run its code. What a built-in container holds is found without it."""
    for function in (by_loud_mapping, by_loud_list, by_view):
        known = channels_of(function.function)
        assert set(known.by_name) == {"urgent"}, function.name
        assert known.is_complete == (function is not by_loud_mapping)


@pytest.mark.parametrize("function", [made_in_it, imported_in_it, by_text])
def test_code_that_may_come_to_others_is_known_to(function: Any) -> None:
    assert not channels_of(function.function).is_complete


def rows(engine: Engine, kind: str) -> list[HistoryRow]:
    persistence = engine.core.stores.persistence
    return [row for row in persistence.read(HistoryOf(key(engine), 0, 100)) if row.type == kind]


def key(engine: Engine) -> str:
    return engine.sync.handle(by_helper, "x").row().key


@pytest.fixture
def engine() -> Any:
    engine = Engine.open("memory://", workflows=[by_helper, made_in_it])
    engine.sync.start(by_helper(), id="x")
    yield engine
    engine.core.close()


def test_what_is_not_of_the_channel_is_refused_with_its_place(engine: Engine) -> None:
    with pytest.raises(InvalidValueError) as raised:
        engine.sync.handle(by_helper, "x").signal(Signal("approval", '{"approved":"yes"}'))
    assert raised.value.problems == ("$.approved: expected boolean, got string",)
    assert str(raised.value).startswith("invalid value for channel 'approval' (Decision) of workflow '")
    assert rows(engine, "signal.received") == []


def test_a_channel_that_there_is_not_is_refused_with_the_name_that_is_nearest(engine: Engine) -> None:
    handle = engine.sync.handle(by_helper, "x")
    with pytest.raises(UnknownChannelError, match=r"no channel 'approvall'; did you mean 'approval'\?"):
        handle.signal(Signal("approvall", '{"approved":true}'))
    with pytest.raises(SignalRefusedError, match="it has 'approval', 'withdrawal'"):
        handle.signal(Channel("elsewhere", int)(5))
    with pytest.raises(UnknownChannelError):
        engine.sync.start(by_helper(), signals=[Signal("approvall", "5")])
    assert rows(engine, "signal.received") == []


def test_what_a_message_leaves_out_is_stored_as_the_default_of_now(engine: Engine) -> None:
    engine.sync.handle(by_helper, "x").signal(Signal("approval", '{"approved":true}'))
    (row,) = rows(engine, "signal.received")
    assert row.payload is not None
    assert parse(row.payload.inline or "") == {"approved": True, "by": "nobody"}
    assert parse(row.data or "") == {"channel": "approval", "checked": True}


def test_what_nobody_can_know_is_stored_unchecked(engine: Engine) -> None:
    run = engine.sync.start(made_in_it("a"), id="y")
    run.signal(Signal("order-a", '"hello"'))
    (event,) = [one for one in run.history() if one.type == "signal.received"]
    assert event.data == {"channel": "order-a"}


def test_without_the_code_it_is_stored_unchecked(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/without.db"
    with Engine.open(url, workflows=[by_helper]).sync as runs:
        runs.start(by_helper(), id="x")
    with Engine.open(url).sync as runs:
        run = runs.handle(by_helper, "x")
        run.signal(Signal("approval", "5"))
        run.signal(approval(Decision(approved=True)))
        unchecked, checked = (one.data for one in run.history() if one.type == "signal.received")
    assert "checked" not in unchecked
    assert checked["checked"] is True


# Defaults ---------------------------------------------------------------------------------------------------------


def trial(cents: int) -> Any:
    class Account:
        @update
        def pay(self, cents: int = cents) -> int:
            return cents

    @workflow(name="trial")
    async def function(customer: str, *, cents: int = cents) -> int:
        expose(Account())
        await withdrawal.receive()
        return cents

    return function, Account


def test_a_start_with_a_key_stays_the_same_when_a_default_is_changed(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/defaults.db"
    (old, old_account), (new, new_account) = trial(500), trial(700)
    with Engine.open(url, workflows=[old]).sync as runs:
        begun = runs.start(old("ann"), idempotency_key="k", id="x")
        assert begun.export_history().input == '{"cents":500,"customer":"ann"}'
        begun.submit_update(old_account.pay(), idempotency_key="u")
    with Engine.open(url, workflows=[new]).sync as runs:
        again = runs.start(new("ann"), idempotency_key="k", id="x")
        assert again.export_history().input == '{"cents":500,"customer":"ann"}'
        again.submit_update(new_account.pay(), idempotency_key="u")
        (asked,) = [row for row in again.export_history().rows if row.type == "update.received"]
        assert asked.payload is not None
        assert asked.payload.inline == '{"cents":500}'
        with pytest.raises(IdempotencyConflictError):
            runs.start(new("ann", cents=600), idempotency_key="k", id="x")
        other = runs.start(new("ben"), id="y")
        assert other.export_history().input == '{"cents":700,"customer":"ben"}'


def test_a_default_that_can_change_is_refused_when_the_workflow_is_defined() -> None:
    with pytest.raises(
        DefinitionError, match="workflow 'shared': parameter 'names' has a default that can be changed"
    ):

        @workflow
        async def shared(names: list[str] = []) -> None: ...  # noqa: B006
