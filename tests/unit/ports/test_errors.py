"""Errors: one root class, a code for each, and a text that says what to do."""

import inspect

import pytest

from holdfast.ports import errors
from holdfast.ports.errors import CommandError, HoldfastError

ALL = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, HoldfastError) and error.__module__ == errors.__name__
]


def test_each_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in ALL]

    assert len(set(codes)) == len(codes)
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_each_error_is_documented(error: type[HoldfastError]) -> None:
    raised_to_say_what_to_do = {errors.CancelRun, errors.GiveUp, errors.RetryAfter}
    assert error in {HoldfastError, *raised_to_say_what_to_do} or error.__name__.endswith("Error")
    assert (error.__doc__ or "").strip().endswith((".", "?"))


def test_a_refused_command_is_no_fault_of_the_store() -> None:
    refused = {error for error in ALL if issubclass(error, CommandError)}

    assert not refused & {
        errors.UnavailableError,
        errors.ConflictError,
        errors.RefusedError,
        errors.SchemaError,
    }
    assert errors.StorageRefusedError in refused


def test_errors_carry_what_they_speak_of() -> None:
    assert errors.RunNotFoundError("x").run_id == "x"
    assert "'x'" in str(errors.RunNotFoundError("x"))
    assert "w@2" in str(errors.UnknownWorkflowError("w", "2"))
    assert "'w'" in str(errors.UnknownWorkflowError("w"))
    known = ("ship@1", "ship@2", "bills@1")
    assert str(errors.UnknownWorkflowError("shp", known=known)).endswith("; did you mean 'ship'?")
    assert str(errors.UnknownWorkflowError("ship", "3", known)).endswith("; did you mean 'ship@2'?")
    assert str(errors.UnknownWorkflowError("x", known=known)).endswith("; registered are 'bills', 'ship'")
    lost = errors.StepLostError("charge", 1)
    assert "Retry(attempts=...)" not in str(lost)
    assert "Retry(attempts=...)" in lost.__notes__[0]
    assert errors.IdempotencyConflictError("k").key == "k"
    assert errors.SessionLostError("s").session == "s"
