"""Interceptors of starts: what they may change, in which order, and what becomes of what they return."""

from collections.abc import Callable
from typing import cast

import attrs
import pytest

from holdfast.errors import InvalidArgumentError
from holdfast.hosts.wiring.start_calls import StartRefusedError, around_starts, intercepted, options_of_child
from holdfast.plugins import StartCall
from holdfast.ports.records.run import NO_OPTIONS, GivenOptions, Run
from holdfast.testing.conformance.builders import a_run

CALL = StartCall(
    kind="run", namespace="n", workflow="w", version="1", run_id=None, attributes={"a": "b"}, headers={}
)
PARENT = a_run(1, id="p", attributes='{"tenant":"acme"}', headers='{"locale":"de"}')


@attrs.frozen
class Changes:
    """An interceptor that makes this of a start."""

    change: Callable[[StartCall], object]

    def start(self, call: StartCall) -> StartCall | None:
        return self.change(call)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def options(*changes: Callable[[StartCall], object], given: GivenOptions = NO_OPTIONS) -> GivenOptions:
    around = tuple(map(Changes, changes))
    return options_of_child(around, PARENT, given, run_id="p/1", workflow="c", version="2")


def test_each_sees_what_those_before_it_have_added() -> None:
    seen: list[StartCall] = []

    def sees(call: StartCall) -> None:
        seen.append(call)

    around = (
        Changes(lambda call: call.with_headers({"x": "1", "y": "1"})),
        Changes(sees),
        Changes(lambda call: call.with_headers({"y": "2"}).with_attributes({"c": "d"})),
    )
    found = intercepted(around, CALL)
    assert (found.headers, found.attributes) == ({"x": "1", "y": "2"}, {"a": "b", "c": "d"})
    assert [call.headers for call in seen] == [{"x": "1", "y": "1"}]
    assert CALL.headers == {}


def test_only_objects_with_the_method_are_called() -> None:
    one = Changes(lambda _: None)
    assert around_starts([object(), one]) == (one,)
    assert intercepted((), CALL) is CALL


def renamed(call: StartCall) -> StartCall:
    return attrs.evolve(call, workflow="other")


def with_headers(**added: object) -> Callable[[StartCall], StartCall]:
    return lambda call: call.with_headers(cast("dict[str, str]", added))


def with_attributes(**added: object) -> Callable[[StartCall], StartCall]:
    return lambda call: call.with_attributes(cast("dict[str, str]", added))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (renamed, "with other attributes or headers"),
        (str, 'or None; not "StartCall('),
        (with_headers(**{"a b": "x"}), "headers is {'a b': 'x'}; it must be a dict of at most 16"),
        (with_headers(a=1), "headers is {'a': 1}"),
        (with_attributes(a=1), "attributes is {'a': 1}; it must be a dict of strings"),
    ],
)
def test_anything_else_is_refused(change: Callable[[StartCall], object], why: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        intercepted((Changes(change),), CALL)
    assert why in str(caught.value)


def test_a_child_run_inherits_what_no_interceptor_changes() -> None:
    seen: list[StartCall] = []

    def sees(call: StartCall) -> None:
        seen.append(call)

    assert options(sees) is NO_OPTIONS
    given = GivenOptions(attributes="{}", headers='{"locale":"en"}')
    assert options(sees, given=given) is given
    first, second = seen
    assert (first.kind, first.namespace, first.run_id, first.parent) == (
        "child",
        PARENT.namespace,
        "p/1",
        "p",
    )
    assert (first.workflow, first.version) == ("c", "2")
    assert (first.attributes, first.headers) == ({"tenant": "acme"}, {"locale": "de"})
    assert (second.attributes, second.headers) == ({}, {"locale": "en"})


def test_what_is_added_to_a_child_run_is_in_its_options() -> None:
    added = options(lambda call: call.with_headers({"span": "1"}))
    assert added == GivenOptions(headers='{"locale":"de","span":"1"}')
    assert options(lambda call: call.with_attributes({"x": "y"})) == GivenOptions(
        attributes='{"tenant":"acme","x":"y"}'
    )
    assert options(lambda call: attrs.evolve(call, headers={})) == GivenOptions(headers="{}")


def test_an_exception_at_the_start_of_a_child_run_names_both() -> None:
    def raises(_: StartCall) -> None:
        raise LookupError("no span")

    with pytest.raises(StartRefusedError, match=r"run 'p/1' of 'c' raised LookupError: no span") as caught:
        options(raises)
    assert isinstance(caught.value.__cause__, LookupError)


def test_runs_without_headers_have_none() -> None:
    assert isinstance(PARENT, Run)
    found = options_of_child(
        (), attrs.evolve(PARENT, headers=None), NO_OPTIONS, run_id="x", workflow="c", version="1"
    )
    assert found is NO_OPTIONS
