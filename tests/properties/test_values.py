"""Accepted values come back equal; all others are refused with their path."""

from typing import Any

import pytest
from hypothesis import event, given, settings

from holdfast.kernel.values import decode, encode
from holdfast.ports.errors import DefinitionError, InvalidValueError, UnstorableValueError
from tests.sample_values import are_alike, typed_values
from tests.sizes import sized


@pytest.mark.slow
@pytest.mark.sized
@settings(max_examples=sized(200, 5_000))
@given(typed_values())
def test_what_is_accepted_comes_back_equal_and_alike(typed: tuple[Any, Any]) -> None:
    form, value = typed
    try:
        text = encode(value, form)
    except DefinitionError:
        event("no such type")
        return
    except InvalidValueError as error:
        places = error.problems
    except UnstorableValueError as error:
        places = (error.path,)
    else:
        event("accepted")
        _check(form, value, text)
        return
    event("refused")
    assert all(place.startswith("$") for place in places)


def _check(form: Any, value: Any, text: str) -> None:
    back = decode(text, form)

    assert are_alike(back, value), (text, back)
    assert encode(back, form) == text
