"""Errors can be imported where people look: `holdfast.errors` has all, `holdfast` those that are caught most."""

import pytest

import holdfast
from holdfast import errors
from holdfast.ports import errors as defined


def test_the_module_of_errors_has_all_of_them() -> None:
    all_ = {
        name
        for name, value in vars(defined).items()
        if isinstance(value, type) and issubclass(value, defined.HoldfastError)
    }
    assert set(errors.__all__) == all_
    assert all(getattr(errors, name) is getattr(defined, name) for name in all_)


@pytest.mark.parametrize(
    "name", ["RunNotFoundError", "RunExistsError", "InvalidValueError", "UnavailableError", "DefinitionError"]
)
def test_those_that_are_caught_most_are_at_the_root(name: str) -> None:
    assert getattr(holdfast, name) is getattr(errors, name)
    assert name in holdfast.__all__


def test_one_that_is_not_at_the_root_is_said_to_be_in_errors() -> None:
    with pytest.raises(AttributeError, match=r"all errors are in holdfast\.errors"):
        _ = holdfast.BlobMissingError
