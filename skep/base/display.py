"""Rows and facts as people look at them: as a table on a terminal, and as HTML in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from skep_format.schema.types import Schema

ROWS_SHOWN: Final = 20
_CHARACTERS: Final = 200  # of a cell


def print_table(rows: pa.Table) -> None:
    """Rows as a table on a terminal."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid()
    for name in rows.schema.names:
        grid.add_column(Text(name))
    for row in _texts(rows):
        grid.add_row(*map(Text, row))
    Console().print(grid)


def first_rows(reader: pa.RecordBatchReader, limit: int) -> tuple[pa.Table, bool]:
    """The first rows of a reader, which is closed, and whether there are more."""
    import pyarrow as pa

    found, count = [], 0
    with reader:
        for batch in reader:
            found.append(batch)
            count += batch.num_rows
            if count > limit:
                break
    return pa.Table.from_batches(found, reader.schema).slice(0, limit), count > limit


def rows_html(rows: pa.Table, more: bool) -> str:
    """Rows as a table of HTML; `more`: there are others."""
    types = [str(field.type) for field in rows.schema]
    note = f"<p>the first {rows.num_rows} rows</p>" if more else ""
    return _grid(rows.schema.names, types, _texts(rows)) + note


def facts_html(title: str, facts: Iterable[tuple[str, object]], schema: Schema) -> str:
    """What a table is, and its columns."""
    from skep_format.schema.types import type_text

    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in facts)
    columns = ((one.name, type_text(one.type), "" if one.nullable else "not null") for one in schema.fields)
    return f"<p><b>{escape(title)}</b></p><table>{lines}</table>" + _grid(("column", "type", ""), (), columns)


def _texts(rows: pa.Table) -> Iterator[tuple[str, ...]]:
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        yield tuple("NULL" if value is None else str(value) for value in row)


def _grid(names: Iterable[str], types: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    kinds = iter(types)
    head = "".join(f'<th title="{escape(next(kinds, ""))}">{escape(name)}</th>' for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(_cut(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "…"
