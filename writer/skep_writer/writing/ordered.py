"""The order of a bulk_insert as Spark expressions: Spark then moves and sorts the rows, on disk where memory ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from skep_format.schema.types import PARTITION_PATH, RECORD_KEY
from skep_table.keys.generator import EMPTY_TEXT, NULL_TEXT
from skep_table.write.keyed import Keyer
from skep_table.write.planning.arrange import Arrangement
from skep_writer.edge import column_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def ordered(frame: DataFrame, keyer: Keyer, arrangement: Arrangement, count: int) -> DataFrame | None:
    """The same rows as `arrangement` has them in `count` tasks. None where no Spark expression gives this order."""
    generator = keyer.generator
    if arrangement.own or generator.own or generator.timestamps or keyer.prepped:
        return None
    # By path in any mode of these: a task keeps so many files open, and ends one that it may have to begin again.
    names = (PARTITION_PATH,) if arrangement.by_path else arrangement.columns
    columns: list[Column] = []
    for name in names:
        found = _columns(frame, keyer, name)
        if found is None:
            return None
        columns += found
    if not columns:
        return frame.repartition(1) if arrangement.by_path else frame
    order = [column.asc_nulls_last() for column in columns]
    if arrangement.by_path:
        frame = frame.repartition(count, *columns)
    elif arrangement.by_range:
        frame = frame.repartitionByRange(count, *order)
    return frame.sortWithinPartitions(*order)


def _columns(frame: DataFrame, keyer: Keyer, name: str) -> list[Column] | None:
    """What stands for a column of keyed rows: as many of the frame's, none where it is the same in all rows."""
    generator = keyer.generator
    if name == PARTITION_PATH:
        return _all_of(frame, keyer, generator.partition_fields)
    if name != RECORD_KEY:
        return _all_of(frame, keyer, (name,))
    if not generator.record_fields:
        return []
    if not all(_is_plain(frame, keyer, field) for field in generator.record_fields):
        return None
    return [
        _prefixed_key(frame, generator.record_fields)
        if generator.prefixed
        else _text(frame, generator.record_fields[0])
    ]


def _all_of(frame: DataFrame, keyer: Keyer, names: Sequence[str]) -> list[Column] | None:
    if not set(names) <= set(frame.columns) or any(_is_text_of_numbers(frame, keyer, name) for name in names):
        return None
    return [column_of(frame, name) for name in names]


def _is_text_of_numbers(frame: DataFrame, keyer: Keyer, name: str) -> bool:
    """Whether a column is text in the frame and something else in the table: text is in another order."""
    from pyspark.sql.types import StringType

    if not isinstance(frame.schema[name].dataType, StringType) or name not in keyer.target.names:
        return False
    return not pa.types.is_string(keyer.target.field(name).type)


def _is_plain(frame: DataFrame, keyer: Keyer, name: str) -> bool:
    """Whether Spark makes the same text of a column as keys are made of."""
    from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StringType

    if name not in frame.columns or name not in keyer.target.names:
        return False
    given, target = frame.schema[name].dataType, keyer.target.field(name).type
    if isinstance(given, StringType):
        return bool(pa.types.is_string(target))
    return isinstance(given, (ByteType, ShortType, IntegerType, LongType)) and bool(pa.types.is_integer(target))


def _prefixed_key(frame: DataFrame, names: Sequence[str]) -> Column:
    from pyspark.sql import functions

    pairs = []
    for name in names:
        text = _text(frame, name)
        text_of_key = functions.when(text == "", EMPTY_TEXT).otherwise(
            functions.coalesce(text, functions.lit(NULL_TEXT))
        )
        pairs.append(functions.concat(functions.lit(f"{name}:"), text_of_key))
    return functions.concat_ws(",", *pairs)


def _text(frame: DataFrame, name: str) -> Column:
    return column_of(frame, name).cast("string")
