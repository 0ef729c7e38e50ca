"""`LogFields`: attributes and headers of runs as fields of log records."""

import logging
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Final

from typing_extensions import override

from holdfast.hosts.wiring.interceptors import BodyCall, FunctionCall
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.validation import Wanted, check

_TAKEN: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""The attributes that every record has: a field of such a name would destroy the record."""
_NAME: Final = Wanted(
    "the name of an attribute or a header, and no attribute of every LogRecord",
    lambda value: isinstance(value, str) and value != "" and value not in _TAKEN,
)


class LogFields(logging.Filter):
    """An interceptor and a filter for Python's `logging` in one: it puts attributes and headers into log records.

    `fields = LogFields("tenant", "traceparent")`. Pass it to `Engine.open(interceptors=[fields])`, and add it to the
    handlers of your log with `addFilter`. Records from durable functions, stages and steps then have these attributes.
    Where a run has a header and an attribute of a name, the attribute counts.

    Args:
        names: Names of attributes and headers.
        default: The text of a field that the run does not have, and of records from outside.

    Raises:
        InvalidArgumentError: No name is given, or one that every LogRecord has.
    """

    def __init__(self, *names: str, default: str = "-") -> None:
        super().__init__()
        if not names:
            raise InvalidArgumentError(
                "names", 'LogFields: name an attribute or a header, such as LogFields("traceparent")'
            )
        for name in names:
            check("LogFields", _NAME, name=name)
        self._fields = names
        self._default = default
        self._texts: ContextVar[Mapping[str, str] | None] = ContextVar("holdfast_log_fields", default=None)

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields to a record. Every record passes."""
        texts = self._texts.get() or {}
        for name in self._fields:
            setattr(record, name, texts.get(name, self._default))
        return True

    def function(self, call: FunctionCall, /) -> AbstractContextManager[None]:
        """Return a context in which records have the fields of the run of a durable function."""
        return self._within(call)

    def body(self, call: BodyCall, /) -> AbstractContextManager[None]:
        """Return a context in which records have the fields of the run of a stage or step."""
        return self._within(call)

    @contextmanager
    def _within(self, call: FunctionCall | BodyCall) -> Generator[None]:
        token = self._texts.set({**call.headers, **call.attributes})
        try:
            yield
        finally:
            self._texts.reset(token)
