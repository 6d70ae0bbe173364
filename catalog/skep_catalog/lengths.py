"""How long the texts of an entry may be: the widths of the columns in a metastore's own database.

By the schema scripts and the JDO mapping (`package.jdo`) of Hive 2.3, 3.1 and 4.0 for Derby, MySQL, PostgreSQL, Oracle
and SQL Server; of those that differ the narrowest counts. A metastore refuses what is longer with a part of an SQL
statement as its message. Comments are shortened, since nothing but people reads them; all else is refused by name.
Types and values of parameters are `CLOB`s or the like but on Derby in 2.3, and no client can ask which database a
server has: they are sent, and named only when the server refuses the entry. AWS Glue has lengths of its own, in bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from skep_catalog.entities import Column, TableEntry

COMMENT: Final = 256
KEY_COMMENT: Final = 4000
_DERBY_TEXT: Final = 32672  # types and values of parameters in 2.3 on Derby
_CUT: Final = "..."


def length(text: str) -> int:
    """In UTF-16 units, by which Java and most databases count: a character beyond U+FFFF is two."""
    return len(text) + sum(character > "\uffff" for character in text)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the texts of an entry may be in one kind of catalog, by `measure`; those of metastores by default."""

    comment: int = COMMENT
    key_comment: int = KEY_COMMENT
    column_name: int = 767
    key_name: int = 128
    key_type: int = 767
    bucket_column: int = 255
    owner: int = 767
    database: int = 128
    table: int = 256
    parameter: int = 256
    location: int = 4000
    partition_value: int = 255
    partition_name: int = 767
    measure: Callable[[str], int] = length
    lines: bool = True
    """Whether comments may have line breaks."""


def _in_bytes(text: str) -> int:
    return len(text.encode())


METASTORE_LENGTHS: Final = Lengths()
GLUE_LENGTHS: Final = Lengths(
    comment=255,
    key_comment=255,
    column_name=255,
    key_name=255,
    key_type=131072,
    owner=255,
    database=255,
    table=255,
    parameter=255,
    location=2056,
    partition_value=1024,
    partition_name=sys.maxsize,  # names of partitions are the client's own
    measure=_in_bytes,
    lines=False,
)
"""By the shapes of Glue's API, whose documentation counts bytes."""


def shortened(text: str, most: int, measure: Callable[[str], int] = length) -> str:
    """`text`, or as much of its beginning as fits with `...` behind it."""
    if measure(text) <= most:
        return text
    kept = text[: most - len(_CUT)]
    while measure(kept) > most - len(_CUT):
        kept = kept[:-1]
    return kept + _CUT


def is_shortened(text: str, whole: str, most: int) -> bool:
    """Whether `text` is what `shortened` made of a longer text that begins like `whole`."""
    return text.endswith(_CUT) and most - 1 <= length(text) <= most and whole.startswith(text.removesuffix(_CUT))


def with_short_comments(
    columns: Sequence[Column], most: int, lengths: Lengths = METASTORE_LENGTHS
) -> tuple[tuple[Column, ...], list[str]]:
    """The columns with comments that fit, and the names of those whose comments did not."""
    if not lengths.lines:
        columns = [replace(c, comment=" ".join(c.comment.splitlines()) if c.comment else c.comment) for c in columns]
    measure = lengths.measure
    cut = [column.name for column in columns if measure(column.comment or "") > most]
    if not cut:
        return tuple(columns), []
    return tuple(replace(c, comment=shortened(c.comment, most, measure) if c.comment else None) for c in columns), cut


def too_long(table: TableEntry, lengths: Lengths = METASTORE_LENGTHS) -> list[str]:
    """What no metastore holds of an entry, each named with its length and the most there is room for."""
    storage = table.storage
    texts: list[tuple[str, str, int]] = [
        ("the database's name", table.database, lengths.database),
        ("the table's name", table.name, lengths.table),
        ("the owner", table.owner or "", lengths.owner),
        ("the location", storage.location or "", lengths.location),
        *((f"the name of column {_named(c.name)}", c.name, lengths.column_name) for c in storage.columns),
        *((f"the name of partition key {_named(k.name)}", k.name, lengths.key_name) for k in table.partition_keys),
        *((f"the type of partition key {_named(k.name)}", k.type, lengths.key_type) for k in table.partition_keys),
        *(
            (f"the name of bucket column {_named(name)}", name, lengths.bucket_column)
            for name in storage.bucket_columns
        ),
        *((f"the name of parameter {_named(key)}", key, lengths.parameter) for key in table.parameters),
        *((f"the name of serde parameter {_named(key)}", key, lengths.parameter) for key in storage.serde_parameters),
    ]
    return list(_over(texts, lengths))


def may_be_too_long(table: TableEntry) -> list[str]:
    """The same of what only some metastores do not hold: types and parameters, in 2.3 on Derby."""
    storage = table.storage
    texts: list[tuple[str, str, int]] = [
        *((f"the type of column {_named(c.name)}", c.type, _DERBY_TEXT) for c in storage.columns),
        *((f"parameter {_named(key)}", value, _DERBY_TEXT) for key, value in table.parameters.items()),
        *((f"serde parameter {_named(key)}", value, _DERBY_TEXT) for key, value in storage.serde_parameters.items()),
    ]
    return list(_over(texts))


def partition_too_long(name: str, values: Sequence[str], lengths: Lengths = METASTORE_LENGTHS) -> str | None:
    """Why no metastore holds a partition of these values; None where it does."""
    texts = [(f"a value of partition {_named(name)}", value, lengths.partition_value) for value in values]
    whole = (f"the name of partition {_named(name)}", name, lengths.partition_name)
    return next(_over([*texts, whole], lengths), None)


def _over(texts: Sequence[tuple[str, str, int]], lengths: Lengths = METASTORE_LENGTHS) -> Iterator[str]:
    unit = "bytes" if lengths.measure is _in_bytes else "characters"
    for what, text, most in texts:
        if (found := lengths.measure(text)) > most:
            yield f"{what} has {found:,} {unit} of at most {most:,}"


def _named(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
