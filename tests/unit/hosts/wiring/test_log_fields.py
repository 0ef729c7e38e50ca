"""Attributes and headers of runs in log records."""

import logging
from collections.abc import Iterator

import pytest
from typing_extensions import override

from holdfast import Pipeline, StageContext, stage, step, workflow
from holdfast.errors import InvalidArgumentError
from holdfast.plugins import LogFields
from holdfast.testing import World

log = logging.getLogger("shop")


class Lines(logging.Handler):
    """Keeps records as text."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s %(tenant)s %(traceparent)s"))
        self.lines: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def fields() -> LogFields:
    return LogFields("tenant", "traceparent")


@pytest.fixture
def lines(fields: LogFields) -> Iterator[list[str]]:
    handler = Lines()
    handler.addFilter(fields)
    log.addHandler(handler)
    yield handler.lines
    log.removeHandler(handler)


@step
def charge() -> None:
    log.warning("step")


@workflow
async def order() -> None:
    log.warning("function")
    await charge()
    log.warning("end")


@stage
def pack(ctx: StageContext, parcels: int) -> int:
    log.warning("stage")
    return parcels


parcels = Pipeline("parcels", input=int).pipe(pack)


def test_records_of_functions_steps_and_stages_have_the_fields_of_their_run(
    fields: LogFields, lines: list[str]
) -> None:
    with World([order, parcels], interceptors=[fields]) as world:
        world.run(order(), attributes={"tenant": "acme", "other": "x"}, headers={"traceparent": "00-1"})
        world.run(parcels(1), headers={"tenant": "header"})
    assert lines == ["function acme 00-1", "step acme 00-1", "end acme 00-1", "stage header -"]


def test_records_from_outside_have_the_default(fields: LogFields, lines: list[str]) -> None:
    log.warning("outside")
    assert lines == ["outside - -"]
    record = logging.makeLogRecord({})
    assert LogFields("tenant", default="none").filter(record)
    assert vars(record)["tenant"] == "none"


def test_an_attribute_counts_before_a_header_of_the_same_name(fields: LogFields, lines: list[str]) -> None:
    with World([parcels], interceptors=[fields]) as world:
        world.run(parcels(1), attributes={"tenant": "attribute"}, headers={"tenant": "header"})
    assert lines == ["stage attribute -"]


@pytest.mark.parametrize("names", [(), ("",), ("msg",), ("tenant", "message"), (1,)])
def test_names_that_a_record_has_already_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="LogFields"):
        LogFields(*names)
