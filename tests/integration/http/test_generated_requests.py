"""Requests that Schemathesis generates from the OpenAPI document.

All of them are valid: invalid ones take long to make, and are those of `test_requests.py`. The command
`schemathesis run http://.../openapi.json` sends both to a server that runs, as many as wanted.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from holdfast import Engine
from holdfast.http import asgi_app
from tests.integration.http.api import NAMESPACE, authenticate
from tests.integration.http.programs import Order, approved, report

schemathesis: Any = import_module("schemathesis")  # its types are not strict
checks: Any = import_module("schemathesis.checks")

CASES: Final = 8
"""How many requests each operation gets."""
IDS: Final = {"run_id": ("one", "two"), "name": ("queue:default", "Board.move"), "label": ("ci",)}
"""Values of parameters in paths that exist."""
UNDECIDED: Final = frozenset({"positive_data_acceptance", "ignored_auth", "unsupported_method"})
"""Checks of what other tests decide, or what a JSON schema can't say: that an instant lies after another, say. Rights
are in the matrix; methods are tested with the routes."""


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: what a request may do to a store is tested elsewhere."""
    return new_sqlite(tmp_path / "holdfast.db")


def answered(operation: Any, excluded: list[Any]) -> int:
    """Send requests to an operation, check the answers, and return how many there were."""
    cases = operation.as_strategy(
        headers={"Authorization": "Bearer all"},
        path_parameters={"namespace": NAMESPACE} if "{namespace}" in operation.path else None,
    )
    number = 0

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(case=cases)
    def answer(case: Any) -> None:
        nonlocal number
        for name, values in IDS.items():
            if number % 3 and name in (case.path_parameters or {}):
                case.path_parameters[name] = values[number % len(values)]
        case.call_and_validate(excluded_checks=excluded)
        number += 1

    answer()
    return number


@pytest.mark.slow
def test_no_generated_request_is_answered_with_anything_undocumented(engine: Engine) -> None:
    for run_id, call in (("one", approved(Order(1))), ("two", report(1))):
        engine.sync.start(call, id=run_id).terminate()  # so that streams end
    engine.sync.keys.create("ci", scopes=["read"])
    schema = schemathesis.openapi.from_asgi("/openapi.json", asgi_app(engine, authenticate=authenticate))
    checks.load_all_checks()
    excluded = [check for check in checks.CHECKS.get_all() if check.__name__ in UNDECIDED]
    assert len(excluded) == len(UNDECIDED)
    number = sum(answered(found.ok(), excluded) for found in schema.get_all_operations())
    assert number >= 400
