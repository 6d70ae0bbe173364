"""Which base files Spark leaves out while it plans a query: by the indexes of the metadata table and the filters of
the query, which it knows only then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from skep_table.query.plan import ReadTask, has_indexes, matching
from skep_table.query.request import ReadRequest
from skep_writer.reading.conditions import from_spark


def files_by_filters(
    tasks: Sequence[ReadTask], request: ReadRequest, files: Sequence[str], columns: pa.Schema
) -> Callable[[Sequence[Any]], bytes] | None:
    """Returns, by objects of Spark's `sources.Filter`, which of `files` can hold rows that pass: a byte for each.

    `files` are the base files of `tasks`, `columns` those that have the name and the type of the table in the files.
    None where the table has no index that the request uses.
    """
    if not tasks or not has_indexes(tasks[0].scan.table, request):
        return None

    def holding(filters: Sequence[Any]) -> bytes:
        predicate = from_spark(filters, columns)
        if predicate is None:
            return bytes([1]) * len(files)
        left = {task.slice.base_file.path for task in matching(tasks, predicate, request) if task.slice.base_file}
        return bytes(path in left for path in files)

    return holding
