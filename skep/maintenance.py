"""`skep.maintain`: does what is due on a table, wherever it is named."""

from __future__ import annotations

import os

from skep.hoodie import open_table
from skep.table import Table
from skep_table.services.done import Done


def maintain(table: Table | str | os.PathLike[str], *, plan: bool = False, **options: object) -> list[Done]:
    """Plans that wait, compaction by its trigger, clustering and expiry where the options ask for them, clean, archive.

    `table` is one of a lake, or the path of one. `plan`: only says what is due. `options` are Hudi's:
    `**{"hoodie.…": …}`.
    """
    return (table if isinstance(table, Table) else open_table(table)).maintain(plan=plan, **options)
