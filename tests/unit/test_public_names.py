"""Every public name can be imported from the module that lists it."""

from importlib import import_module

import pytest

MODULES = (
    "holdfast",
    *(
        f"holdfast.{name}"
        for name in ("client", "errors", "http", "metrics", "plugins", "remote", "serverless", "workflows")
    ),
)


@pytest.mark.parametrize("module", MODULES)
def test_each_name_is_there(module: str) -> None:
    names: list[str] = import_module(module).__all__
    assert names == sorted(set(names))
    for name in names:
        assert getattr(import_module(module), name) is not None


def test_the_root_has_fewer_than_fifty_names() -> None:
    """What most programs need; the other modules are lists of one subject each."""
    assert len(import_module("holdfast").__all__) < 50
