"""Definitions of tables that each database makes in its own way: text that is compared, and partial indexes."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Dialect, Index, Text, text


class BytewiseText(Text):
    """Text that is compared bytewise, so that every database sorts keys alike.

    It is TEXT, unless the folder of a database compiles it otherwise (`sqlalchemy.ext.compiler`).
    """


def partial(condition: str | None, dialect: Dialect) -> Mapping[str, Any]:
    """Return the arguments of an index on the rows that meet a condition; none for one on all rows.

    In a database without partial indexes it has all rows. That costs space only: the rows left out of a unique index
    are those with a NULL in it.
    """
    accepts = any(of is Index and "where" in arguments for of, arguments in dialect.construct_arguments or ())
    return {f"{dialect.name}_where": text(condition)} if condition and accepts else {}
