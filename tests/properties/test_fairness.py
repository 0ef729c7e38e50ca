"""Keys that share workers, under random starts and claims: shares, and the order of a single key (F6, F7)."""

from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fair_lines import Line, plan

KEYS = ("A", "B", "C")
_WEIGHTS = st.fixed_dictionaries({key: st.sampled_from([1, 1, 2, 3, 4, 7, 10]) for key in KEYS})
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from(KEYS), st.integers(1, 12)),
        st.tuples(st.just("serve"), st.just(""), st.integers(1, 12)),
        st.tuples(st.just("wait"), st.just(""), st.integers(0, 3_600_000)),
    ),
    min_size=4,
    max_size=30,
)


class _Claim(NamedTuple):
    key: str
    before: frozenset[str]
    """The keys with a run that waits, before it."""
    after: frozenset[str]


def _waiting_after(started: Counter[str], served: Counter[str]) -> frozenset[str]:
    return frozenset(key for key in KEYS if started[key] > served[key])


@pytest.mark.slow
@given(weights=_WEIGHTS, steps=_STEPS)
@settings(max_examples=60, deadline=None)
def test_of_two_keys_that_wait_neither_gets_more_than_its_share_and_a_turn(
    weights: dict[str, int], steps: list[tuple[str, str, int]]
) -> None:
    """In every stretch of claims during which both of them have a run that waits.

    A key without one, even between two claims, joins anew: it saves no turns.
    """
    line = Line()
    started, served = Counter[str](), Counter[str]()
    claims: list[_Claim] = []
    for step, key, number in [*steps, ("serve", "", 1_000)]:
        if step == "start":
            line.start(key, number, weight=weights[key])
            started[key] += number
        elif step == "wait":
            line.passes(number / 1_000)
        else:
            for _ in range(number):
                waiting = _waiting_after(started, served)
                claimed = line.serve(1)
                if not claimed:
                    break
                served.update(claimed)
                claims.append(_Claim(claimed[0], waiting, _waiting_after(started, served)))
    assert served == started
    for one in KEYS:
        for other in KEYS:
            if one < other:
                _check_shares(claims, one, other, weights)


def _check_shares(claims: list[_Claim], one: str, other: str, weights: dict[str, int]) -> None:
    """Check all stretches at once: the lead of a key, from its lowest to its highest point, is what they may differ."""
    turn_of_one, turn_of_other = Fraction(1, weights[one]), Fraction(1, weights[other])
    most = turn_of_one + turn_of_other
    lead, lowest, highest = Fraction(0), Fraction(0), Fraction(0)
    for key, before, after in claims:
        if not {one, other} <= before:
            lead, lowest, highest = Fraction(0), Fraction(0), Fraction(0)
            continue
        lead += turn_of_one if key == one else -turn_of_other if key == other else 0
        lowest, highest = min(lowest, lead), max(highest, lead)
        assert lead - lowest <= most, (one, weights, claims)
        assert highest - lead <= most, (other, weights, claims)
        if not {one, other} <= after:
            lead, lowest, highest = Fraction(0), Fraction(0), Fraction(0)


@pytest.mark.slow
@given(steps=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 2_000)), max_size=15))
@settings(max_examples=30, deadline=None)
def test_with_one_key_the_order_is_that_without_fairness(steps: list[tuple[int, int, int]]) -> None:
    fair, plain = Line(), Line(plan(fair=None))
    orders: list[list[str]] = []
    for line in (fair, plain):
        order: list[str] = []
        for starts, serves, wait in steps:
            line.start("A", starts)
            order += line.serve(serves, runs=True)
            line.passes(wait / 1_000)
        orders.append([*order, *line.serve(1_000, runs=True)])

    assert orders[0] == orders[1]
