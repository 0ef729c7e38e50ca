"""Statements over psycopg's libpq layer, since a cursor for each would take longer than the server.

Other features of cursors are not needed: there are few statements, each with the same types of parameters every time,
run one after the other (docs/decisions/0010).
"""

import re
import struct
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import psycopg
from psycopg import adapt, generators, pq, waiting
from psycopg.abc import Transformer
from psycopg.errors import error_from_result

from holdfast.adapters.sql.postgresql.row_cache import RowCache
from holdfast.adapters.sql.rows import Row

PREPARED_AFTER: Final = 5
"""Uses of a statement on a connection before the server is to prepare it."""
PREPARED_MAX: Final = 200
"""The most prepared statements of a connection."""

SENT_FROM: Final = 8 * 1024
"""Bytes of parameters that are collected before they are sent, while more are being encoded.

Waking the server takes longer than its work on a few rows.
"""

_ANY: Final = 0
_BOOL: Final = 16
_INTEGER: Final = 23
_BIGINT: Final = 20
_TEXT: Final = 25
_TEXTS: Final = 1009
"""OIDs of parameter types. For a text, the server infers the type."""

_ARRAY: Final = struct.Struct("!iiIii")
"""Dimensions, whether there are NULLs, the elements' type; then how many elements, and the number of the first."""
_NO_DIMENSIONS: Final = struct.Struct("!iiI")
_LENGTH: Final = struct.Struct("!i")

_INTEGERS: Final = 2**31

_PARAMETER: Final = re.compile(r"%\(([a-z_0-9]+)\)s")

_FAILED: Final = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED)

_Key: TypeAlias = tuple[str, tuple[int, ...]]
"""A statement and the types of its parameters."""


class StatementResult:
    """The result of a statement."""

    __slots__ = ("_loader", "_result")

    def __init__(self, result: pq.abc.PGresult, loader: Transformer) -> None:
        self._result = result
        self._loader = loader

    @property
    def hits(self) -> int:
        """The number of rows returned or affected."""
        return self._result.command_tuples or 0

    def rows(self) -> list[Row]:
        """Return the result's rows."""
        self._loader.set_pgresult(self._result)
        return self._loader.load_rows(0, self._result.ntuples, tuple)


class StatementRunner:
    """Runs statements on a connection, one after the other. With `prepares`, the server may prepare some.

    Errors are those of psycopg; UnicodeError for a text that no database can store.
    """

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool) -> None:
        self.connection = connection
        self.prepares = prepares
        self.memory = RowCache()
        self._pgconn = connection.pgconn
        self._loader: Transformer = adapt.Transformer(connection)
        self._made: dict[_Key, int] = {}
        """How often statements were run that are not prepared."""
        self._names: dict[_Key, bytes] = {}
        self._last_name = 0

    def fileno(self) -> int:
        """See `HasSocket`."""
        return self.connection.fileno()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    @property
    def status(self) -> pq.TransactionStatus:
        """The state of the connection's transaction."""
        return pq.TransactionStatus(self._pgconn.transaction_status)

    def make(self, sql: str, parameters: Mapping[str, Any], *, prepared: bool = False) -> StatementResult:
        """Run a statement. With `prepared`, it is prepared after frequent use."""
        if not parameters and not prepared:
            self._pgconn.send_query(sql.encode())
            return self._answer()
        text, values, key = self._encoded(sql, parameters)
        name = None
        if prepared and self.prepares:
            name, is_new = self._name(key)
            if name is not None and is_new:
                self._pgconn.send_prepare(name, text, param_types=key[1])
                try:
                    self._answer()
                except psycopg.Error:
                    del self._names[key]
                    raise
        self._send(name, text, values, key)
        return self._answer()

    def make_all(
        self, statements: Iterable[tuple[str, Mapping[str, Any], bool]]
    ) -> Sequence[StatementResult]:
        """Run several statements in one pipeline, each with its `prepared` flag, and wait for all answers together.

        The server starts on large ones as they arrive, answers none before all were sent, and runs none after a
        failure.
        """
        pgconn = self._pgconn
        sent: list[_Key | None] = []
        unsent = 0
        pgconn.enter_pipeline_mode()
        try:
            for sql, parameters, prepared in statements:
                text, values, key = self._encoded(sql, parameters)
                name = None
                if prepared and self.prepares:
                    name, is_new = self._name(key)
                    if name is not None and is_new:
                        pgconn.send_prepare(name, text, param_types=key[1])
                        sent.append(key)
                self._send(name, text, values, key)
                sent.append(None)
                unsent += sum(map(len, filter(None, values)))
                if unsent >= SENT_FROM:
                    pgconn.flush()
                    unsent = 0
        finally:
            # Wait for the statements already sent, even if encoding a later one failed.
            pgconn.pipeline_sync()
            results = self.connection.wait(_results(pgconn))
            pgconn.exit_pipeline_mode()
            if any(result.status in _FAILED for result in results):
                for one in sent:
                    if one is not None:  # it may be prepared or not: use a new name next time
                        self._names.pop(one, None)
        _check(results)
        return [
            StatementResult(result, self._loader)
            for result, key in zip(results, sent, strict=True)
            if key is None
        ]

    def _encoded(self, sql: str, parameters: Mapping[str, Any]) -> tuple[bytes, Sequence[bytes | None], _Key]:
        """Return a statement in libpq's form, its parameters, and its key."""
        text, names = _numbered(sql)
        values: list[bytes | None] = []
        kinds: list[int] = []
        for name in names:
            value, kind = _dumped(parameters[name])
            values.append(value)
            kinds.append(kind)
        return text, values, (sql, tuple(kinds))

    def _send(self, name: bytes | None, text: bytes, values: Sequence[bytes | None], key: _Key) -> None:
        formats = [pq.Format.BINARY if kind == _TEXTS else pq.Format.TEXT for kind in key[1]]
        if name is None:
            self._pgconn.send_query_params(text, values, param_types=key[1], param_formats=formats)
        else:
            self._pgconn.send_query_prepared(name, values, param_formats=formats)

    def _name(self, key: _Key) -> tuple[bytes | None, bool]:
        """Return the name of a prepared statement, None for others, and whether it must be prepared first."""
        name = self._names.get(key)
        if name is not None or len(self._names) >= PREPARED_MAX:
            return name, False
        made = self._made[key] = self._made.get(key, 0) + 1
        if made <= PREPARED_AFTER:
            return None, False
        self._last_name += 1
        name = self._names[key] = f"holdfast_{self._last_name}".encode()
        return name, True

    def _answer(self) -> StatementResult:
        """Wait for the result of the last statement."""
        results = self.connection.wait(generators.execute(self._pgconn))
        _check(results)
        return StatementResult(results[-1], self._loader)


def _check(results: Sequence[pq.abc.PGresult]) -> None:
    """Raise the first error."""
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(result, encoding="utf-8")


def _results(pgconn: pq.abc.PGconn) -> Generator[waiting.Wait, waiting.Ready | int, list[pq.abc.PGresult]]:
    """Wait for the results of all statements up to a sync."""
    results: list[pq.abc.PGresult] = []
    while pgconn.flush():
        if (yield waiting.Wait.RW) & waiting.Ready.R:
            pgconn.consume_input()
    while True:
        while pgconn.is_busy():
            yield waiting.Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:  # libpq separates the results of statements by None
            if pgconn.status == pq.ConnStatus.BAD:
                _check(results)
                raise psycopg.OperationalError("the connection was lost")
            continue
        if result.status == pq.ExecStatus.PIPELINE_SYNC:
            return results
        results.append(result)


@lru_cache(maxsize=1_024)
def _numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with numbered parameters, and their names in that order."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    places = {name: f"${place}" for place, name in enumerate(names, 1)}
    text = _PARAMETER.sub(lambda found: places[found[1]], sql)
    return (text.replace("%%", "%") if names else text).encode(), names


def _dumped(value: object) -> tuple[bytes | None, int]:
    """Return a parameter, in binary form if it is a list, otherwise as a text; and its type."""
    if isinstance(value, str):
        return _text(value), _ANY
    if isinstance(value, bool):
        return (b"t" if value else b"f"), _BOOL
    if isinstance(value, int):
        return str(value).encode(), _INTEGER if -_INTEGERS <= value < _INTEGERS else _BIGINT
    if value is None:
        return None, _ANY
    if isinstance(value, list):
        return _array(cast("list[str]", value)), _TEXTS
    raise TypeError(f"no statement has a parameter of type {type(value).__name__}")


def _array(texts: Sequence[str]) -> bytes:
    """Return texts as an array in binary form: as a text, each would have to be escaped here and parsed there."""
    parts = [_ARRAY.pack(1, 0, _TEXT, len(texts), 1)] if texts else [_NO_DIMENSIONS.pack(0, 0, _TEXT)]
    for one in texts:
        text = _text(one)
        parts += _LENGTH.pack(len(text)), text
    return b"".join(parts)


def _text(value: str) -> bytes:
    text = value.encode()
    if b"\0" in text:
        raise psycopg.DataError("PostgreSQL text can't contain NUL (0x00) bytes")
    return text
