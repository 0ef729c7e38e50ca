"""Decoding of recorded values, whose types may have changed since."""

from holdfast.kernel.values import decode
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.errors import InvalidValueError, UnreadableInputError


def decode_recorded(text: str, form: Form, what: str, row: int | None = None) -> object:
    """Return the value of a recorded JSON text. `what` names it and `row` is its history row, for the error.

    UnreadableInputError if it does not have the type any more: the run is then blocked until code that can read it is
    deployed.
    """
    try:
        return decode(text, form)
    except InvalidValueError as error:
        raise UnreadableInputError(what, row, error.problems) from error
