"""Values that Hudi's encoding of record keys and partition paths can't distinguish from others.

A composite key is `a:<value>,b:<value>`: the values (`x,b:y`, `z`) and (`x`, `y,b:z`) make one key, and so do null and
`__null__`, empty text and `__empty__`. Without URL encoding the partition values (`a/b`, `c`) and (`a`, `b/c`) make
one folder. It is enough to refuse one of each two: then every key and path belongs to one row of values only.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import KeyFieldError
from skep_table.keys.generator import EMPTY_TEXT, NULL_TEXT, KeyGenerator
from skep_table.keys.text import column_of

ALLOW_AMBIGUOUS = "skep.write.ambiguous.keys"


def check_unambiguous(generator: KeyGenerator, rows: pa.Table) -> None:
    """KeyFieldError, naming the column, for values that may make the same key or path as other values."""
    if generator.own:
        return
    if len(generator.record_fields) > 1:
        for field, texts, following in _texts(generator.record_fields, rows):
            _refuse(field, texts, pc.is_in(texts, pa.array([NULL_TEXT, EMPTY_TEXT], texts.type)), "record key")
            if following:
                _refuse(field, texts, pc.match_substring(texts, f",{following}:"), "record key")
    if not generator.url_encode:
        for field, texts, following in _texts(generator.partition_fields, rows):
            if following and field not in generator.timestamps:
                separator = f"/{following}=" if generator.hive_style else "/"
                _refuse(field, texts, pc.match_substring(texts, separator), "partition path")


def _texts(fields: tuple[str, ...], rows: pa.Table) -> Iterator[tuple[str, pa.Array, str | None]]:
    """The fields that hold text, each with its values and the name of the next field: no number has a separator."""
    for field, following in zip_longest(fields, fields[1:]):
        values = column_of(rows, field)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            yield field, values, following


def _refuse(field: str, texts: pa.Array, ambiguous: pa.Array, what: str) -> None:
    if not pc.any(ambiguous).as_py():
        return
    found = pc.filter(texts, pc.fill_null(ambiguous, False))
    encode = "hoodie.datasource.write.partitionpath.urlencode=true keeps paths apart; " if what[0] == "p" else ""
    raise KeyFieldError(
        f"column {field}: {found[0].as_py()!r} and other values can make the same {what}, so that rows would be lost",
        hint=f"{encode}{ALLOW_AMBIGUOUS}=allow writes it as Hudi does",
        column=field,
        found=found[0].as_py(),
        rows=len(found),
    )
