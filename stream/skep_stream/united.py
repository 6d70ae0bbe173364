"""Rows of several origins in one table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from skep_format.errors import InputError
from skep_format.schema.arrow import nullable


def united(tables: Sequence[pa.Table], what: str) -> pa.Table:
    """With all of their columns, which may be null where some rows lack them. InputError for types that don't fit."""
    if all(each.schema.equals(tables[0].schema) for each in tables):
        return pa.concat_tables(tables)
    try:
        return pa.concat_tables([each.cast(nullable(each.schema)) for each in tables], promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"the {what} of a round have columns that don't fit each other: {error}") from error
