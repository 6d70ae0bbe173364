"""Frames compared with what skep reads alone: the same columns in the same types, the same rows as often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Any, TypeVar

import pyarrow as pa

from skep_format.json_text import json_lines
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_writer import collect_arrow, to_spark
from skep_writer.schemas import spark_arrow, spark_type

T = TypeVar("T")


def lines(batches: Iterable[pa.RecordBatch]) -> Counter[bytes]:
    """How often each row occurs, as text."""
    return Counter(line for batch in batches for line in bytes(json_lines(batch)).split(b"\n") if line)


def rows_of(frame: Any, schema: pa.Schema | None = None) -> Counter[bytes]:
    """The rows of a frame, in the Arrow types of `schema`."""
    found = collect_arrow(frame)
    return lines((found if schema is None else found.cast(schema)).to_batches())


def same_columns(frame: Any, schema: pa.Schema) -> str | None:
    """How the columns of a frame differ from those of an answer in Arrow."""
    found = [(field.name, field.dataType.simpleString()) for field in frame.schema]
    expected = [(field.name, field.dataType.simpleString()) for field in spark_type(spark_arrow(schema))]
    return None if found == expected else f"columns {found}, expected {expected}"


def difference(table: HudiTable, request: ReadRequest, spark: Any) -> str | None:
    """How Spark's answer differs from Arrow's, or how the two refusals do; None where both are the same."""
    try:
        result = read(table, request)
        expected = lines(result.to_batches())
    except Exception as refusal:
        try:
            to_spark(table, request, spark).collect()
        except type(refusal) as found:
            return None if str(found) == str(refusal) else f"refused with {found}, Arrow's read with {refusal}"
        return f"answered, where Arrow's read is refused with {refusal!r}"
    frame = to_spark(table, request, spark)
    return same_columns(frame, result.schema) or unlike(rows_of(frame, result.schema), expected)


def unlike(found: Counter[bytes], expected: Counter[bytes]) -> str | None:
    """The first rows that differ; None where none do."""
    if found == expected:
        return None
    missing, extra = list((expected - found).elements()), list((found - expected).elements())
    shown = [f"- {row!r}" for row in missing[:2]] + [f"+ {row!r}" for row in extra[:2]]
    return "\n".join([f"{len(missing)} rows missing, {len(extra)} too many", *shown])


def pairwise(items: Sequence[T], features: Sequence[tuple[Any, ...]]) -> list[T]:
    """A few of the items, in order, among which every pair of features occurs that occurs among all."""
    pairs = [{(at, bt, a, b) for (at, a), (bt, b) in combinations(enumerate(each), 2)} for each in features]
    open_pairs = set().union(*pairs)
    chosen: set[int] = set()
    while open_pairs:
        best = max(range(len(items)), key=lambda at: len(pairs[at] & open_pairs))
        chosen.add(best)
        open_pairs -= pairs[best]
    return [items[at] for at in sorted(chosen)]


def combinations_of(values: dict[str, Sequence[str]], tries: int = 12) -> Iterator[dict[str, str]]:
    """A few combinations of settings among which every pair of values of two settings occurs; always the same ones."""
    chance = Random(1)
    open_pairs = {frozenset(((a, x), (b, y))) for a, b in combinations(values, 2) for x in values[a] for y in values[b]}
    while open_pairs:
        rows = [_combination(values, open_pairs, chance) for _ in range(tries)]
        best = max(rows, key=lambda row: len(_pairs(row) & open_pairs))
        open_pairs -= _pairs(best)
        yield best


def _combination(values: dict[str, Sequence[str]], open_pairs: set[Any], chance: Random) -> dict[str, str]:
    """Settings chosen one after the other, each for the most pairs with those before."""
    row = dict(min(open_pairs, key=sorted))
    names = [name for name in values if name not in row]
    chance.shuffle(names)
    for name in names:
        new = {
            value: sum(frozenset(((name, value), other)) in open_pairs for other in row.items())
            for value in chance.sample(list(values[name]), len(values[name]))
        }
        row[name] = max(new, key=lambda value: new[value])
    return {name: row[name] for name in values}


def _pairs(row: dict[str, str]) -> set[Any]:
    return {frozenset(pair) for pair in combinations(row.items(), 2)}
