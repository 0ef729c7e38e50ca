"""Errors can be imported where people look: `holdfast.errors` has all of them."""

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


@pytest.mark.parametrize("name", ["HoldfastError", "GiveUp", "RetryAfter"])
def test_those_that_bodies_raise_are_at_the_root(name: str) -> None:
    assert getattr(holdfast, name) is getattr(errors, name)
    assert name in holdfast.__all__


@pytest.mark.parametrize("name", ["BlobMissingError", "RunInfo", "Call", "nothing_of_this_name"])
def test_a_name_that_is_not_at_the_root_is_looked_for_elsewhere(name: str) -> None:
    with pytest.raises(
        AttributeError, match=r"more names are in holdfast\.client, holdfast\.workflows, .*errors$"
    ):
        getattr(holdfast, name)


@pytest.mark.parametrize("module", ["client", "errors", "plugins", "serverless", "workflows"])
def test_the_public_modules_are_attributes_of_the_package(module: str) -> None:
    assert getattr(holdfast, module).__name__ == f"holdfast.{module}"
