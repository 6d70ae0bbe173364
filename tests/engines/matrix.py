"""What each engine reads: what is known not to work, and the tables of it in the docs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine_values import Row

SNAPSHOT = "merge-on-read, snapshot"
COLUMNS = ("copy-on-write", "merge-on-read, read-optimized", SNAPSHOT)


@dataclass(frozen=True)
class Limit:
    """What an engine does instead of reading a view right: it refuses with an error of `pattern`, answers as skep does
    another `query`, or gives `rows` of the right ones. With `settings` of its session it may read it right."""

    text: str
    pattern: str | None = None
    query: str | None = None
    rows: Callable[[list[Row]], list[Row]] | None = None
    settings: tuple[str, ...] = ()


def replaced(change: Callable[[str, Any], Any]) -> Callable[[list[Row]], list[Row]]:
    """Rows whose values an engine changes."""
    return lambda rows: [{name: change(name, value) for name, value in row.items()} for row in rows]


def missing_partitions_as(text: str) -> Callable[[list[Row]], list[Row]]:
    return replaced(lambda name, value: text if name == "part" and value is None else value)


def one_null_for_empty_arrays(*, everywhere: bool) -> Callable[[list[Row]], list[Row]]:
    """In rows of base files; those of logs are of the second commit."""
    return lambda rows: [
        {**row, "items": row["items"] or [None]} if everywhere or row["ts"] == 1 else row for row in rows
    ]


NULL_FOR_EMPTY = "yes, but an empty array in a base file reads as one null"
STALE = "**stale**: base files only, no error"
MILLISECONDS = Limit(
    "yes, to the millisecond",
    rows=replaced(lambda name, value: value[:-3] + "000" if name == "a_timestamp" and value else value),
)
HIVES_MISSING_PARTITION = Limit(
    "yes; a missing partition value reads `__HIVE_DEFAULT_PARTITION__`",
    rows=missing_partitions_as("__HIVE_DEFAULT_PARTITION__"),
)
ROW_BY_ROW = "spark.sql.parquet.enableVectorizedReader=false"
# (engine, recipe or *, view or *) → why
LIMITS: dict[tuple[str, str, str], Limit] = {
    ("hive-2.3.10", "timestamps", "*"): MILLISECONDS,
    # Hudi's merging takes a struct of the base file for one of all members.
    ("hive-2.3.10", "added_members", SNAPSHOT): Limit("no: an error", pattern="out of bounds"),
    ("presto-0.287", "added_members", SNAPSHOT): Limit("no: an error", pattern="out of bounds"),
    ("spark-3.5", "widened_within", "*"): Limit(f"yes, with `{ROW_BY_ROW}`", settings=(f"set {ROW_BY_ROW}",)),
    ("presto-0.287", "timestamps", "*"): MILLISECONDS,
    # Its Hudi takes its Hive for Hive 3, and asks for classes that are not there.
    ("presto-0.287", "dates", SNAPSHOT): Limit("no: an error", pattern="Hive3Shim"),
    ("presto-0.287", "timestamps", SNAPSHOT): Limit("no: an error", pattern="Hive3Shim"),
    # Hudi's reader of Parquet for Flink has arrays of plain types alone, and takes columns for what they are declared.
    **{
        ("flink-1.17.2", recipe, "*"): Limit("no: an error", pattern="Unsupported type in the list")
        for recipe in ("nested", "added_members")
    },
    **{
        ("flink-1.17.2", recipe, "*"): Limit("no: an error", pattern="Unexpected type: INT32")
        for recipe in ("widened_columns", "widened_within")
    },
    ("flink-1.17.2", "added_containers", "*"): Limit(NULL_FOR_EMPTY, rows=one_null_for_empty_arrays(everywhere=True)),
    ("flink-1.17.2", "added_containers", SNAPSHOT): Limit(
        NULL_FOR_EMPTY, rows=one_null_for_empty_arrays(everywhere=False)
    ),
    ("trino-476", "*", SNAPSHOT): Limit(STALE, query="read_optimized"),
    ("trino-476", "odd_partitions", SNAPSHOT): Limit(STALE, query="read_optimized", rows=missing_partitions_as("\\N")),
    ("trino-476", "odd_partitions", "*"): Limit(
        "yes; a missing partition value reads `\\N`", rows=missing_partitions_as("\\N")
    ),
    ("hive-2.3.10", "odd_partitions", "*"): HIVES_MISSING_PARTITION,
    # Hive 4 has other classes for times and structs than those that Hudi's bundle was made with.
    ("hive-4.0.1", "odd_partitions", "*"): HIVES_MISSING_PARTITION,
    ("hive-4.0.1", "timestamps", "*"): Limit("no: an error", pattern="Timestamp"),
    ("hive-4.0.1", "dates", SNAPSHOT): Limit("no: an error", pattern="DateWritable"),
    ("hive-4.0.1", "two_levels", SNAPSHOT): Limit("no: an error on dates", pattern="DateWritable"),
    ("hive-4.0.1", "nested", "*"): Limit("no: an error", pattern="getAllStructFieldTypeInfos"),
    **{
        ("hive-4.0.1", recipe, "*"): Limit("no: an error on structs", pattern="getAllStructFieldTypeInfos")
        for recipe in ("added_columns", "widened_columns", "added_members", "added_containers", "widened_within")
    },
}


def known(engine: str, recipe: str, view: str) -> Limit | None:
    for key in ((engine, recipe, view), (engine, recipe, "*"), (engine, "*", view)):
        if key in LIMITS:
            return LIMITS[key]
    return None


def with_section(page: str, engine: str, section: str) -> str:
    """The page with an engine's table in its place, which two comments mark."""
    begin, end = f"<!-- {engine}: as the tests find it -->\n", f"<!-- {engine}: end -->\n"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    assert found, f"no place for {engine} in the page"
    assert closed, f"the place for {engine} in the page does not end"
    return f"{before}{begin}{section}{end}{after}"


def section(engine: str, features: Mapping[str, str]) -> str:
    """What an engine reads, as a table in Markdown: a row for each recipe of a table, by the `features` it shows."""
    lines = ["| | " + " | ".join(COLUMNS) + " |", "| --- |" + " --- |" * len(COLUMNS)]
    for recipe, feature in features.items():
        limits = (known(engine, recipe, view) for view in COLUMNS)
        lines.append(f"| {feature} | " + " | ".join(limit.text if limit else "yes" for limit in limits) + " |")
    return "\n".join(lines) + "\n"
