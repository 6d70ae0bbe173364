"""Rows that can't be written: found one by one, so that the others are committed."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from skep_format.errors import InputError
from skep_format.json_text import ROWS, json_rows
from skep_format.rowfiles.rejected import SCHEMA

log = logging.getLogger("skep.stream")
Check = Callable[[pa.Table], object]
"""Raises InputError for rows of which one can't be written."""


def unfit(rows: pa.Table, check: Check) -> dict[int, str]:
    """The positions of the rows that `check` refuses, each with the reason. InputError where it refuses no rows at all.

    A batch without such rows is checked once, one of them takes about two checks more for each halving of the batch.
    """
    found: dict[int, str] = {}
    parts = [(0, rows.num_rows)]
    while parts:
        start, count = parts.pop()
        try:
            check(rows.slice(start, count))
        except InputError as error:
            if count == rows.num_rows:
                # columns that don't fit are not the fault of rows
                check(pa.Table.from_arrays([pa.array([], kind) for kind in rows.schema.types], schema=rows.schema))
            if count == 1:
                found[start] = error.message
            else:
                half = count // 2
                parts += [(start + half, count - half), (start, half)]
    return found


def sifted(rows: pa.Table, check: Check, source: str) -> tuple[pa.Table, pa.Table | None]:
    """The rows that fit, and those that `check` refuses as error tables have them: with their numbers in the batch,
    from 1, and their values as JSON; None for none."""
    found = unfit(rows, check)
    if not found:
        return rows, None
    fits = np.ones(rows.num_rows, dtype=bool)
    fits[list(found)] = False
    others = rows.filter(pa.array(~fits)).combine_chunks()
    texts = [text for batch in others.to_batches() for text in json_rows(batch, ROWS).to_pylist()]
    numbers = [at + 1 for at in sorted(found)]
    reasons = [found[at] for at in sorted(found)]
    log.warning("%s: %d rows can't be written, the first: number %d: %s", source, len(found), numbers[0], reasons[0])
    columns = [pa.repeat(pa.scalar(source), len(found)), numbers, texts, reasons]
    return rows.filter(pa.array(fits)), pa.table(columns, schema=SCHEMA)


def joined(*rejected: pa.Table | None) -> pa.Table | None:
    """All rejected records; None for none."""
    there = [each for each in rejected if each is not None]
    return pa.concat_tables(there) if there else None
