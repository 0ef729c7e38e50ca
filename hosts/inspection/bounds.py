"""Bounds of the documents about a run. A document marks where it was cut."""

from typing import Final

HISTORY_ROWS_MAX: Final = 20_000
"""How many history rows, from the first on, the details of stages and steps are derived from."""
ENTRIES_MAX: Final = 1_000
"""How many entries a list in a document has: jobs, steps, annotations, progress."""
CHILDREN_SHOWN: Final = 20
"""How many child runs, the newest, the details of a run list."""
SCHEDULES_PAGE: Final = 100
"""How many schedules are read at once."""
CHILDREN_PAGE: Final = 100
"""How many child runs are read at a time."""
PREVIEW_MAX: Final = 4_096
"""How many characters of the JSON text of a value are shown in a list."""
PUBLISHED_ROWS_MAX: Final = 200
"""How many rows are read for all published values of a run: names that were last published earlier are left out."""
