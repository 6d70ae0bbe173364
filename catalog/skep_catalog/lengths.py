"""How long the texts of an entry may be: the widths of the columns in a metastore's own database.

By the schema scripts and the JDO mapping (`package.jdo`) of Hive 2.3, 3.1 and 4.0 for Derby, MySQL, PostgreSQL, Oracle
and SQL Server; of those that differ the narrowest counts. A metastore refuses what is longer with a part of an SQL
statement as its message. Comments are shortened, since nothing but people reads them; all else is refused by name.
Types and values of parameters are `CLOB`s or the like but on Derby in 2.3, and no client can ask which database a
server has: they are sent, and named only when the server refuses the entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from skep_catalog.entities import Column, TableEntry

COMMENT: Final = 256
KEY_COMMENT: Final = 4000
PARTITION_VALUE: Final = 255
PARTITION_NAME: Final = 767
_COLUMN_NAME: Final = 767
_KEY_NAME: Final = 128
_KEY_TYPE: Final = 767
_BUCKET_COLUMN: Final = 255
_OWNER: Final = 767
_DATABASE: Final = 128
_TABLE: Final = 256
_PARAMETER: Final = 256
_LOCATION: Final = 4000
_DERBY_TEXT: Final = 32672  # types and values of parameters in 2.3 on Derby
_CUT: Final = "..."


def length(text: str) -> int:
    """In UTF-16 units, by which Java and most databases count: a character beyond U+FFFF is two."""
    return len(text) + sum(character > "\uffff" for character in text)


def shortened(text: str, most: int) -> str:
    """`text`, or as much of its beginning as fits with `...` behind it."""
    if length(text) <= most:
        return text
    kept = text[: most - len(_CUT)]
    while length(kept) > most - len(_CUT):
        kept = kept[:-1]
    return kept + _CUT


def is_shortened(text: str, whole: str, most: int) -> bool:
    """Whether `text` is what `shortened` made of a longer text that begins like `whole`."""
    return text.endswith(_CUT) and most - 1 <= length(text) <= most and whole.startswith(text.removesuffix(_CUT))


def with_short_comments(columns: Sequence[Column], most: int) -> tuple[tuple[Column, ...], list[str]]:
    """The columns with comments that fit, and the names of those whose comments did not."""
    cut = [column.name for column in columns if length(column.comment or "") > most]
    if not cut:
        return tuple(columns), []
    return tuple(replace(c, comment=shortened(c.comment, most) if c.comment else c.comment) for c in columns), cut


def too_long(table: TableEntry) -> list[str]:
    """What no metastore holds of an entry, each named with its length and the most there is room for."""
    storage = table.storage
    texts: list[tuple[str, str, int]] = [
        ("the database's name", table.database, _DATABASE),
        ("the table's name", table.name, _TABLE),
        ("the owner", table.owner or "", _OWNER),
        ("the location", storage.location or "", _LOCATION),
        *((f"the name of column {_named(c.name)}", c.name, _COLUMN_NAME) for c in storage.columns),
        *((f"the name of partition key {_named(k.name)}", k.name, _KEY_NAME) for k in table.partition_keys),
        *((f"the type of partition key {_named(k.name)}", k.type, _KEY_TYPE) for k in table.partition_keys),
        *((f"the name of bucket column {_named(name)}", name, _BUCKET_COLUMN) for name in storage.bucket_columns),
        *((f"the name of parameter {_named(key)}", key, _PARAMETER) for key in table.parameters),
        *((f"the name of serde parameter {_named(key)}", key, _PARAMETER) for key in storage.serde_parameters),
    ]
    return list(_over(texts))


def may_be_too_long(table: TableEntry) -> list[str]:
    """The same of what only some metastores do not hold: types and parameters, in 2.3 on Derby."""
    storage = table.storage
    texts: list[tuple[str, str, int]] = [
        *((f"the type of column {_named(c.name)}", c.type, _DERBY_TEXT) for c in storage.columns),
        *((f"parameter {_named(key)}", value, _DERBY_TEXT) for key, value in table.parameters.items()),
        *((f"serde parameter {_named(key)}", value, _DERBY_TEXT) for key, value in storage.serde_parameters.items()),
    ]
    return list(_over(texts))


def partition_too_long(name: str, values: Sequence[str]) -> str | None:
    """Why no metastore holds a partition of these values; None where it does."""
    texts = [(f"a value of partition {_named(name)}", value, PARTITION_VALUE) for value in values]
    return next(_over([*texts, (f"the name of partition {_named(name)}", name, PARTITION_NAME)]), None)


def _over(texts: Sequence[tuple[str, str, int]]) -> Iterator[str]:
    for what, text, most in texts:
        if (found := length(text)) > most:
            yield f"{what} has {found:,} characters of at most {most:,}"


def _named(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
