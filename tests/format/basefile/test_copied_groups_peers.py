"""Base files with copied row groups, read by DuckDB, Polars and Sail (DataFusion): each finds the rows by statistics,
filters over values and indexes of pages.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from copied_groups import copied_groups
from polars.testing import assert_frame_equal

from skep.query.sail_server import run
from skep_format.basefile import BaseFileOptions, BaseFileWriter, open_base
from skep_format.basefile.keys import AVRO_SCHEMA
from skep_format.options import Options
from skep_format.schema.arrow import from_arrow, to_arrow
from skep_format.schema.avro import avro_text
from skep_format.schema.types import FILE_NAME
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("name", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("d", pa.float64()),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("tags", pa.list_(pa.string())),
        ("labels", pa.map_(pa.string(), pa.int64())),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
    ]
)
META = list(to_arrow(from_arrow(SCHEMA).with_meta()))[: -len(SCHEMA)]
ID = len(META)
FILTERED = ("name", "n", "place.city")
FILTERS = {f"parquet.bloom.filter.enabled#{name}": "true" for name in FILTERED}
Keys = list[tuple[int, int]]
"""Numbers of keys, each with its ordering value."""


def rows(keys: Keys) -> pa.Table:
    def row(i: int, ts: int) -> dict[str, object]:
        v = i * 10 + ts
        return {
            "id": f"k{i:04d}",
            "ts": ts,
            "n": None if i % 11 == 0 else v,
            "name": f"n{v}",
            "price": Decimal(v),
            "day": dt.date(2020, 1, 1) + dt.timedelta(days=v),
            "moment": dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(hours=v),
            "d": math.nan if i % 37 == 0 else v / 4,
            "place": None if i % 7 == 0 else {"city": f"c{v}", "zip": v},
            "tags": [f"t{v}"] * (i % 3),
            "labels": [(f"l{at}", v) for at in range(i % 3)],
            "raw": str(v).encode(),
            "flag": i % 2 == 0,
        }

    return pa.Table.from_pylist([row(i, ts) for i, ts in keys], SCHEMA)


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Keys]:
    """The base file of a table after seven writes, and the rows that it must hold."""
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), ordering="ts")
    options = Options({"hoodie.parquet.block.size": "4096", **FILTERS})
    table = create_table(LocalStorage(str(tmp_path / "t")), spec).with_context(options=options)
    expected: dict[int, int] = {}
    steps: list[tuple[str, Sequence[int], int]] = [
        ("bulk_insert", range(400), 1),
        ("upsert", range(100, 110), 2),
        ("insert", range(400, 420), 1),
        ("upsert", [*range(205, 215), *range(420, 425)], 3),
        ("delete", range(300, 305), 1),
        ("insert", range(430, 434), 1),
        ("upsert", range(3), 4),
    ]
    for operation, numbers, ts in steps:
        keys = dict.fromkeys(numbers, ts)
        with copied_groups() as copied:
            (stat,) = getattr(LocalWriter(table.reload()), operation)(rows([*keys.items()])).metadata.stats
        assert operation == "bulk_insert" or len(copied) > 20
        expected |= keys
        if operation == "delete":
            expected = {number: ts for number, ts in expected.items() if number not in keys}
    return Path(table.storage.root, stat.path), [*expected.items()]


def with_meta(file: Path, keys: Keys) -> pa.Table:
    found = rows(keys)
    names = pa.array([file.name] * len(keys))
    meta = [names if field.name == FILE_NAME else found.column("id") for field in META]
    return pa.table([*meta, *found.columns], schema=pa.schema([*META, *SCHEMA]))


def of_another_writer(file: Path, keys: Keys, **options: Any) -> None:
    """Rows with filters over values, and with indexes of their pages, which have 20 rows; with Hudi's schema."""
    found = with_meta(file, keys)
    filters = {name: {"ndv": 100, "fpp": 0.01} for name in FILTERED}
    pages = {"write_page_index": True, "write_batch_size": 20, "max_rows_per_page": 20}
    with pq.ParquetWriter(file, found.schema, bloom_filter_options=filters, **pages, **options) as writer:
        writer.write_table(found, row_group_size=100)
        writer.add_key_value_metadata({AVRO_SCHEMA: avro_text(from_arrow(SCHEMA).with_meta())})


@pytest.fixture(params=["1.0", "2.0"])
def joined(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Keys]:
    """A file with row groups of another writer, some of them left out, and others before, between and behind them."""
    keys = [(number, 1) for number in range(1000)]
    other, file = tmp_path / "other.parquet", tmp_path / "t.parquet"
    of_another_writer(other, keys[100:900], data_page_version=request.param, store_schema=False)
    storage, schema = LocalStorage(str(tmp_path)), from_arrow(SCHEMA).with_meta()
    options = BaseFileOptions.of(Options(FILTERS))
    with BaseFileWriter(storage, file.name, schema, options) as writer, open_base(storage, other.name) as held:
        assert writer.takes(held)
        writer.copy(held, 7)
        writer.write(with_meta(file, keys[:100]))
        for number in (0, 3, 2):
            writer.copy(held, number)
        writer.write(with_meta(file, keys[900:]))
    return file, [*keys[800:900], *keys[:200], *keys[400:500], *keys[300:400], *keys[900:]]


Conditions = Iterator[tuple[str, Callable[[int], bool]]]
"""Conditions in SQL, and whether a row fulfils them, by the number that its values are made of."""


def conditions(keys: Keys) -> Conditions:
    for number, ts in keys[::17]:
        v = number * 10 + ts
        yield f"name = 'n{v}'", lambda each, v=v: each == v
        yield f"n = {v}", lambda each, v=v: each == v and each // 10 % 11 > 0
        yield f"place.city = 'c{v}'", lambda each, v=v: each == v and each // 10 % 7 > 0
    for low in range(1, keys[-1][0] * 10, 1000):
        yield f"price between {low} and {low + 99}", lambda each, low=low: low <= each <= low + 99
        day = dt.date(2020, 1, 1) + dt.timedelta(days=low)
        yield f"day = date '{day}'", lambda each, low=low: each == low
        yield f"id < 'k{low // 10:04d}'", lambda each, low=low: each // 10 < low // 10


def about_nan(keys: Keys) -> Conditions:
    """NaN is the greatest number."""
    for low in range(0, keys[-1][0] * 10, 1000):
        yield f"d >= {low / 4}e0", lambda each, low=low: each >= low or each // 10 % 37 == 0


def by_duckdb(file: Path, where: str) -> list[str]:
    return [key for (key,) in duckdb.sql(f"select id from '{file}' where {where}").fetchall()]


def by_polars(file: Path, where: str) -> list[str]:
    found: list[str] = pl.scan_parquet(file).filter(pl.sql_expr(where)).select("id").collect()["id"].to_list()
    return found


def by_sail(file: Path, where: str) -> list[str]:
    found: list[str] = run(f"select id from parquet.`{file}` where {where}").column(0).to_pylist()
    return found


READERS = (by_duckdb, by_polars, by_sail)


def finds_all(file: Path, keys: Keys, conditions: Conditions) -> None:
    """Each reader finds the rows of each condition."""
    for where, holds in conditions:
        wanted = sorted(f"k{number:04d}" for number, ts in keys if holds(number * 10 + ts))
        for reader in READERS:
            assert sorted(reader(file, where)) == wanted, (reader.__name__, where)


def reads_all(file: Path, keys: Keys) -> None:
    """Each reader gives all rows as they were written, in their order."""
    wanted, names = rows(keys), SCHEMA.names
    columns = ", ".join(names)
    by_arrow = pq.read_table(file, page_checksum_verification=True).select([FILE_NAME, *names])
    assert set(by_arrow.column(0).to_pylist()) == {file.name}
    for found in (by_arrow.select(names), run(f"select {columns} from parquet.`{file}`")):
        assert str(found.to_pylist()) == str(wanted.to_pylist())
    assert duckdb.sql(f"select {columns} from '{file}' except all select * from wanted").fetchall() == []
    assert_frame_equal(pl.read_parquet(file, columns=names), cast("pl.DataFrame", pl.from_arrow(wanted)))


def left_out(file: Path, where: str, what: str) -> int:
    """How many row groups or pages Sail does not read for a condition."""
    (plan,) = run(f"explain analyze select id from parquet.`{file}` where {where}").column(0).to_pylist()
    found = re.search(rf"{what}=(\d+) total → (\d+) matched", plan)
    assert found is not None, plan
    return int(found[1]) - int(found[2])


def test_readers_find_the_rows_of_a_table(written: tuple[Path, Keys]) -> None:
    file, keys = written
    reads_all(file, keys)
    finds_all(file, keys, conditions(keys))
    finds_all(file, keys, about_nan(keys))
    groups = pq.read_metadata(file).num_row_groups
    assert groups > 20
    assert left_out(file, "n between 1500 and 1600", "row_groups_pruned_statistics") >= groups - 3
    probe = f"select bloom_filter_excludes from parquet_bloom_probe('{file}', 'name', 'n1501')"
    assert sorted(duckdb.sql(probe).fetchall()) == [(False,), *[(True,)] * (groups - 1)]


def test_readers_find_the_rows_beside_indexes_of_pages(joined: tuple[Path, Keys]) -> None:
    """Which row groups of another writer have, but for the column of file names, and others have not."""
    file, keys = joined
    reads_all(file, keys)
    finds_all(file, keys, conditions(keys))
    chunks = [pq.read_metadata(file).row_group(number).column(ID) for number in range(6)]
    assert [chunk.has_column_index and chunk.has_offset_index for chunk in chunks].count(True) == 4
    assert left_out(file, "n between 1510 and 1590", "row_groups_pruned_statistics") == 5


def test_either_all_columns_of_a_row_group_have_an_index_of_their_pages_or_none(joined: tuple[Path, Keys]) -> None:
    """Trino ends a query with a condition, and with a column that lacks it where others have it, in an error."""
    metadata = pq.read_metadata(joined[0])
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(at) for at in range(metadata.num_columns)]
        lacking = {chunk.path_in_schema for chunk in chunks if not chunk.has_offset_index}
        assert len(lacking) in (0, len(chunks)), (number, lacking)


def test_a_column_has_statistics_in_all_row_groups_or_in_none(joined: tuple[Path, Keys]) -> None:
    """Hudi 0.15 takes a row group without for one of nulls: the range that it states for the file lacks its rows."""
    metadata = pq.read_metadata(joined[0])
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [at for at in range(metadata.num_columns) if groups[0].column(at).path_in_schema != "d"]  # has NaN
    found = {groups[0].column(at).path_in_schema: {each.column(at).is_stats_set for each in groups} for at in columns}
    assert {name for name, stated in found.items() if len(stated) > 1} == set()
