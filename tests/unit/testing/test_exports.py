"""The names that users import from `holdfast.testing`."""

import subprocess
import sys

import pytest

import holdfast.testing


def test_every_name_is_there() -> None:
    for name in holdfast.testing.__all__:
        assert getattr(holdfast.testing, name) is not None


@pytest.mark.slow
def test_without_the_extra_it_is_said_how_to_install_it() -> None:
    program = """
import sys
sys.modules["greenlet"] = None
try:
    from holdfast.testing import simulate
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    expected = 'greenlet holdfast.testing.simulate needs greenlet: pip install "holdfast[testing]"'
    assert ran.stdout.strip() == expected


def test_what_else_is_missing_is_not_said_to_be_of_the_extra() -> None:
    program = """
import sys
sys.modules["holdfast.testing.world"] = None
try:
    from holdfast.testing import World
except ModuleNotFoundError as error:
    print(error.name)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "holdfast.testing.world"
