"""The tables that engines are asked for: written by skep in many steps, as users' tables are, and synced by it.

Each is made in both table types. In a merge-on-read table the last steps are in log files only, so its read-optimized
view holds other values than its snapshot: an engine that merges where it must not, or not where it must, shows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from copied_groups import copied_groups

from skep.handles.table import Table
from skep.lake import Lake
from skep_format.names import BaseFormat
from skep_format.storage import open_storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table

UTC = dt.timezone.utc
SMALL_ROW_GROUPS = {"hoodie.parquet.block.size": "512"}
COMPACT_NOW = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}


@dataclass(frozen=True)
class View:
    """One entry of the metastore, and the query of skep that must give the same rows."""

    entry: str
    query: str
    merge_on_read: bool

    @property
    def merged(self) -> bool:
        """Whether log files count."""
        return self.merge_on_read and self.query == "snapshot"

    @property
    def kind(self) -> str:
        """As the documents call it."""
        if not self.merge_on_read:
            return "copy-on-write"
        return "merge-on-read, read-optimized" if self.query == "read_optimized" else "merge-on-read, snapshot"


@dataclass(frozen=True)
class Recipe:
    """How a table is made. `write(table)` does all steps; `feature` is its row in the documents."""

    name: str
    feature: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    hive_style: bool
    url_encode: bool
    write: Callable[[Table], None]
    base_format: BaseFormat = BaseFormat.PARQUET

    def make(self, lake: Lake, kind: str) -> Made:
        name = f"{self.name}_{kind}"
        spec = TableSpec(
            name=name,
            database=lake.database,
            schema=self.schema,
            record_key=("id",),
            partition_by=self.partition_by,
            ordering="ts",
            type=TableType.MERGE_ON_READ if kind == "mor" else TableType.COPY_ON_WRITE,
            hive_style=self.hive_style,
            url_encode=self.url_encode,
            base_format=self.base_format,
        )
        create_table(open_storage(f"{lake.warehouse}/{name}"), spec)
        table = lake.register(f"{lake.warehouse}/{name}", name)
        self.write(table)
        return Made(self, kind, table)


@dataclass(frozen=True)
class Made:
    recipe: Recipe
    kind: str
    table: Table

    @property
    def views(self) -> tuple[View, ...]:
        name = self.table.name
        if self.kind == "cow":
            return (View(name, "snapshot", False),)
        return (View(f"{name}_ro", "read_optimized", True), View(f"{name}_rt", "snapshot", True))


RECIPES: dict[str, Recipe] = {}


def recipe(
    feature: str,
    schema: pa.Schema,
    *,
    partition_by: tuple[str, ...] = (),
    hive_style: bool = False,
    url_encode: bool = False,
) -> Callable[[Callable[[Table], None]], Callable[[Table], None]]:
    def add(write: Callable[[Table], None]) -> Callable[[Table], None]:
        name = write.__name__
        RECIPES[name] = Recipe(name, feature, schema, partition_by, hive_style, url_encode, write)
        return write

    return add


def frame(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


PLAIN = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("note", pa.string()), ("amount", pa.float64()), ("part", pa.string())]
)


def plain(ids: range | list[int], ts: int, part: Callable[[int], Any] | Any = "north", note: str = "first") -> pa.Table:
    def row(i: int) -> dict[str, Any]:
        value = part(i) if callable(part) else part
        return {"id": f"id-{i:03}", "ts": ts, "note": note, "amount": i / 4 + ts, "part": value}

    return frame(PLAIN, [row(i) for i in ids])


def upsert_beside_copies(table: Table, rows: pa.Table) -> None:
    """An upsert; of a base file the row groups that it does not change are copied."""
    with copied_groups() as copied:
        table.upsert(rows, **SMALL_ROW_GROUPS)
    assert len(copied) > 1 or table.hudi.config.type is TableType.MERGE_ON_READ


# -- types -------------------------------------------------------------------------------------------------------------

ADDRESS = pa.struct([("street", pa.string()), ("zip", pa.int32()), ("at", pa.struct([("x", pa.float64())]))])
TYPES = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("a_boolean", pa.bool_()),
        ("an_int", pa.int32()),
        ("a_long", pa.int64()),
        ("a_float", pa.float32()),
        ("a_double", pa.float64()),
        ("a_decimal", pa.decimal128(10, 2)),
        ("a_big_decimal", pa.decimal128(38, 10)),
        ("a_string", pa.string()),
    ]
)
NESTED = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("address", ADDRESS),
        ("numbers", pa.list_(pa.int32())),
        ("words", pa.list_(pa.string())),
        ("items", pa.list_(pa.struct([("name", pa.string()), ("count", pa.int64())]))),
        ("labels", pa.map_(pa.string(), pa.int64())),
    ]
)
DATES = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a_date", pa.date32())])
TIMES = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a_timestamp", pa.timestamp("us", "UTC"))])
BINARY = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a_binary", pa.binary())])


def typed(i: int, ts: int) -> dict[str, Any]:
    if i % 7 == 0:
        return {"id": f"id-{i:03}", "ts": ts}  # all null
    edge = i % 7 == 1
    return {
        "id": f"id-{i:03}",
        "ts": ts,
        "a_boolean": i % 2 == 0,
        "an_int": -(2**31) if edge else i * ts,
        "a_long": 2**63 - 1 if edge else -i * ts,
        "a_float": 3.5 * i + ts,
        "a_double": 1e300 if edge else -i / 8,
        "a_decimal": Decimal("-99999999.99") if edge else Decimal(i).scaleb(-2),
        "a_big_decimal": Decimal("1234567890123456789012345678.0123456789") if edge else Decimal(i * ts),
        "a_string": 'Grün, 冷蔵, "q" \\ \'' if edge else f"text {i} of {ts}",
    }


@recipe("plain types, nulls, edge values", TYPES)
def types(table: Table) -> None:
    table.insert(frame(TYPES, [typed(i, 1) for i in range(21)]), **SMALL_ROW_GROUPS)
    upsert_beside_copies(table, frame(TYPES, [typed(i, 2) for i in range(3, 12)]))


@recipe("dates", DATES)
def dates(table: Table) -> None:
    def row(i: int, ts: int) -> dict[str, Any]:
        odd = {0: None, 1: dt.date(1969, 12, 31), 2: dt.date(1600, 2, 29)}
        return {"id": f"id-{i:03}", "ts": ts, "a_date": odd.get(i, dt.date(2024, 2, 28) + dt.timedelta(days=i * ts))}

    table.insert(frame(DATES, [row(i, 1) for i in range(8)]))
    table.upsert(frame(DATES, [row(i, 2) for i in range(1, 5)]))


@recipe("timestamps", TIMES)
def timestamps(table: Table) -> None:
    def row(i: int, ts: int) -> dict[str, Any]:
        moment = dt.datetime(2024, 3, 31, 1, 59, 59, 123456, UTC) + dt.timedelta(hours=i * ts)
        odd = {
            0: None,
            1: dt.datetime(1970, 1, 1, 0, 0, 0, 1, UTC),
            2: dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        }
        return {"id": f"id-{i:03}", "ts": ts, "a_timestamp": odd.get(i, moment)}

    table.insert(frame(TIMES, [row(i, 1) for i in range(8)]))
    table.upsert(frame(TIMES, [row(i, 2) for i in range(1, 5)]))


@recipe("structs, arrays, maps, nested in one another", NESTED)
def nested(table: Table) -> None:
    def row(i: int, ts: int) -> dict[str, Any]:
        if i % 5 == 0:
            return {"id": f"id-{i:03}", "ts": ts}
        return {
            "id": f"id-{i:03}",
            "ts": ts,
            "address": {"street": f"s{i}" if i % 2 else None, "zip": 1000 + ts, "at": {"x": i / 2}},
            "numbers": list(range(i % 3)),
            "words": [f"w{ts}"] * (i % 4),
            "items": [{"name": "a", "count": i}, {"name": f"b{ts}", "count": None}][: i % 3],
            "labels": {f"k{n}": n + ts for n in range(i % 3)},
        }

    table.insert(frame(NESTED, [row(i, 1) for i in range(20)]), **SMALL_ROW_GROUPS)
    upsert_beside_copies(table, frame(NESTED, [row(i, 2) for i in range(4, 9)]))


@recipe("binary", BINARY)
def binary(table: Table) -> None:
    table.insert(frame(BINARY, [{"id": f"id-{i}", "ts": 1, "a_binary": b"abc"[: i % 4]} for i in range(8)]))
    table.upsert(frame(BINARY, [{"id": f"id-{i}", "ts": 2, "a_binary": b"xyz"} for i in range(3)]))


# -- partitions --------------------------------------------------------------------------------------------------------


@recipe("one partition column", PLAIN, partition_by=("part",))
def partitioned(table: Table) -> None:
    table.insert(plain(range(24), 1, lambda i: ("north", "south", "east")[i % 3]))
    table.upsert(plain(range(3, 9), 2, lambda i: ("north", "south", "east")[i % 3], "second"))


ODD = ("a b", "ü-冷", "x=y", "50%", "a/b", None, "it's")


@recipe("special partition values", PLAIN, partition_by=("part",), hive_style=True, url_encode=True)
def odd_partitions(table: Table) -> None:
    table.insert(plain(range(21), 1, lambda i: ODD[i % 7]))
    table.upsert(plain(range(5, 14), 2, lambda i: ODD[i % 7], "second"))


LEVELS = pa.schema([*PLAIN, ("year", pa.int32()), ("day", pa.date32())])


@recipe("two partition columns, number and date", LEVELS, partition_by=("year", "day"), hive_style=True)
def two_levels(table: Table) -> None:
    def rows(ids: range, ts: int) -> pa.Table:
        days = [dt.date(2023, 12, 31) + dt.timedelta(days=i % 3) for i in ids]
        years = pa.array([day.year for day in days], pa.int32())
        return plain(ids, ts).append_column("year", years).append_column("day", pa.array(days))

    table.insert(rows(range(18), 1))
    table.upsert(rows(range(6, 11), 2))


# -- evolution: files of one partition keep the older columns ----------------------------------------------------------

OLD = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("count", pa.int32()),
        ("ratio", pa.float32()),
        ("where", pa.struct([("city", pa.string())])),
        ("part", pa.string()),
    ]
)
ADDED = pa.schema(
    [
        *(OLD.field(name) for name in ("id", "ts", "count", "ratio")),
        ("where", pa.struct([("city", pa.string()), ("country", pa.string())])),
        OLD.field("part"),
        ("added", pa.string()),
    ]
)
WIDENED = pa.schema(
    [
        *(OLD.field(name) for name in ("id", "ts")),
        ("count", pa.int64()),
        ("ratio", pa.float64()),
        *(OLD.field(name) for name in ("where", "part")),
    ]
)


def _place(i: int) -> str:
    return ("north", "south")[i % 2]


@recipe("added columns, also inside of structs", OLD, partition_by=("part",))
def added_columns(table: Table) -> None:
    def row(i: int, ts: int, **more: Any) -> dict[str, Any]:
        return {"id": f"id-{i:03}", "ts": ts, "count": i, "ratio": i / 2, "part": _place(i), **more}

    table.insert(frame(OLD, [row(i, 1, where={"city": f"c{i}"}) for i in range(12)]))
    where = {"city": "new", "country": "nl"}
    table.upsert(frame(ADDED, [row(i, 2, where=where, added=f"a{i}") for i in (0, 2, 4)]))


def _within(element: pa.DataType, *more: tuple[str, pa.DataType]) -> pa.Schema:
    """A struct, an array and a map of the same, and what comes after them."""
    within = [
        ("one", pa.struct([("of", element)])),
        ("items", pa.list_(element)),
        ("labels", pa.map_(pa.string(), element)),
    ]
    return pa.schema([("id", pa.string()), ("ts", pa.int64()), *within, ("part", pa.string()), *more])


def _containing(i: int, ts: int, element: Any, **more: Any) -> dict[str, Any]:
    within = {"one": {"of": element}, "items": [element] * (i % 3), "labels": {"k": element}}
    return {"id": f"id-{i:03}", "ts": ts, **within, "part": _place(i), **more}


ITEM = pa.struct([("name", pa.string())])
MORE_OF_ITEM = pa.struct([("name", pa.string()), ("count", pa.int64())])


@recipe("added members of structs inside of structs, arrays and maps", _within(ITEM), partition_by=("part",))
def added_members(table: Table) -> None:
    table.insert(frame(_within(ITEM), [_containing(i, 1, {"name": f"n{i}"}) for i in range(12)]))
    more = [_containing(i, 2, {"name": f"m{i}", "count": i}) for i in (0, 2, 4)]
    table.upsert(frame(_within(MORE_OF_ITEM), more))


@recipe("added arrays and maps, and a column named `_hoodie_…`", _within(pa.int32()), partition_by=("part",))
def added_containers(table: Table) -> None:
    table.insert(frame(_within(pa.int32()), [_containing(i, 1, i) for i in range(12)]))
    kinds = {"tags": pa.list_(pa.string()), "counts": pa.map_(pa.string(), pa.int64()), "_hoodie_origin": pa.string()}
    values = {"tags": ["a", "b"], "counts": {"x": 1, "y": None}, "_hoodie_origin": "here"}
    table.upsert(frame(_within(pa.int32(), *kinds.items()), [_containing(i, 2, -i, **values) for i in (0, 2, 4)]))


@recipe("widened members of structs, elements of arrays, values of maps", _within(pa.int32()), partition_by=("part",))
def widened_within(table: Table) -> None:
    table.insert(frame(_within(pa.int32()), [_containing(i, 1, i) for i in range(12)]))
    table.upsert(frame(_within(pa.int64()), [_containing(i, 2, 2**40 + i) for i in (0, 2, 4)]))


@recipe("widened columns: int to bigint, float to double", OLD, partition_by=("part",))
def widened_columns(table: Table) -> None:
    def row(i: int, ts: int, count: int) -> dict[str, Any]:
        return {"id": f"id-{i:03}", "ts": ts, "count": count, "ratio": i / 2, "where": {"city": "c"}, "part": _place(i)}

    table.insert(frame(OLD, [row(i, 1, i) for i in range(12)]))
    table.upsert(frame(WIDENED, [row(i, 2, 2**40 + i) for i in (0, 2, 4)]))


# -- a table's life ----------------------------------------------------------------------------------------------------


@recipe("updates, deletes, dropped partitions, compactions", PLAIN, partition_by=("part",))
def life(table: Table) -> None:
    def place(i: int) -> str:
        return ("north", "south", "east", "west")[i % 4]

    table.insert(plain(range(40), 1, place))
    table.upsert(plain(range(10, 22), 2, place, "second"))
    table.upsert(plain(range(10, 16), 0, place, "too late"))
    table.delete(plain(range(20, 28), 3, place))
    if table.hudi.config.type is TableType.MERGE_ON_READ:
        table.upsert(plain(range(28, 31), 4, place, "compacted"), **COMPACT_NOW)
    table.delete_partitions("west")
    table.upsert(plain([1, 2, 4, 40, 44], 5, place, "last"))
    table.delete(plain([5, 8], 6, place))


# -- tables that are no row of the documents ---------------------------------------------------------------------------


def with_indexes_of_pages(table: Table) -> None:
    """Row groups copied out of a file of another writer, with indexes of its pages, as Hudi's files have them."""
    table.insert(plain(range(600), 1))
    (file,) = (each for each in Path(table.path).glob("*.parquet"))
    held = pq.ParquetFile(file)
    rows, entries = held.read().replace_schema_metadata(None), held.metadata.metadata
    pages = {"write_page_index": True, "write_batch_size": 20, "max_rows_per_page": 20}
    with pq.ParquetWriter(file, rows.schema, store_schema=False, **pages) as writer:
        writer.write_table(rows, row_group_size=100)
        writer.add_key_value_metadata({key: value for key, value in entries.items() if not key.startswith(b"ARROW:")})
    with copied_groups() as copied:
        table.upsert(plain(range(250, 255), 2))
    assert len(copied) == 5


IN_ORC = pa.schema(
    [
        *NESTED,
        ("a_decimal", pa.decimal128(12, 3)),
        ("a_date", pa.date32()),
        ("a_timestamp", pa.timestamp("us", "UTC")),
        ("part", pa.string()),
    ]
)


def in_orc(table: Table) -> None:
    """Base files in ORC, one version of each: engines see them all."""

    def row(i: int, ts: int) -> dict[str, Any]:
        if i % 5 == 0:
            return {"id": f"id-{i:03}", "ts": ts, "part": "south"}
        return {
            "id": f"id-{i:03}",
            "ts": ts,
            "address": None
            if i % 3 == 0
            else {"street": None if i % 3 == 1 else f"s{i}", "zip": i, "at": {"x": i / 2}},
            "numbers": list(range(i % 3)),
            "words": [f"w{ts}"] * (i % 4),
            "items": [{"name": "a", "count": i}, {"name": f"b{ts}", "count": None}][: i % 3],
            "labels": {f"k{n}": n + ts for n in range(i % 3)},
            "a_decimal": Decimal(i * ts).scaleb(-3),
            "a_date": dt.date(2024, 2, 28) + dt.timedelta(days=i),
            "a_timestamp": dt.datetime(2024, 3, 31, 1, 59, 59, 123456, UTC) + dt.timedelta(hours=i),
            "part": _place(i),
        }

    table.insert(frame(IN_ORC, [row(i, 1) for i in range(30)]))
    table.upsert(frame(IN_ORC, [row(i, 2) for i in range(5, 12)]))
    table.clean(**{"hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.cleaner.fileversions.retained": "1"})


UNLISTED = {
    "with_indexes_of_pages": Recipe(
        "with_indexes_of_pages", "", PLAIN, (), hive_style=False, url_encode=False, write=with_indexes_of_pages
    ),
    "in_orc": Recipe(
        "in_orc", "", IN_ORC, ("part",), hive_style=False, url_encode=False, write=in_orc, base_format=BaseFormat.ORC
    ),
}
