"""Reading what was recorded, perhaps by other code."""

from holdfast.kernel.values import decode
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.errors import InvalidValueError, UnreadableInputError


def decode_recorded(text: str, form: Form, what: str, row: int | None = None) -> object:
    """Return the value that a recorded text stands for; `what` names it, `row` is that of the history that has it.

    UnreadableInputError: then the run of whoever asks is blocked, until code is there that reads it.
    """
    try:
        return decode(text, form)
    except InvalidValueError as error:
        raise UnreadableInputError(what, row, error.problems) from error
