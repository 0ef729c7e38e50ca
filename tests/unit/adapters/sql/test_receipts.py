"""Receipts of transactions, in databases that have them."""

from types import SimpleNamespace
from typing import cast

from holdfast.adapters.sql.database import Database
from holdfast.adapters.sql.pruning import prune_receipts


def test_a_database_may_have_a_clock_of_its_own_and_no_receipts() -> None:
    """Nothing is asked of it then: there is neither a reader nor a writer here."""
    database = cast("Database", SimpleNamespace(clock_sql="SELECT 1", has_receipts=False))

    assert prune_receipts(database, 1.0) == 0
