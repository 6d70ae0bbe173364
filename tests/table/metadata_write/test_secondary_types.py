"""Secondary indexes of dates, timestamps, decimals and booleans: made, kept, used, and dropped where texts change."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import UnsupportedError
from skep_format.schema.change import DropColumn, RenameColumn
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.parts.batches import CommitLabel
from skep_table.metadata_table.records.secondary_index import secondary_texts
from skep_table.query import ReadRequest, read
from skep_table.query.read import explain
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.services.metadata.indexing import build_index, index_named
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import create_savepoint, restore
from skep_table.table import HudiTable
from skep_table.upgrade import change_version
from skep_table.write.alter import commit_changes
from skep_table.write.local import LocalWriter

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
OPTIONS = {"hoodie.metadata.enable": "true"}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("milli", pa.timestamp("ms", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(20, 10)),
        ("flag", pa.bool_()),
        ("amount", pa.float64()),
        ("ratio", pa.float32()),
        ("raw", pa.binary()),
        ("part", pa.string()),
    ]
)
INDEXED = {8: ("at", "price", "flag"), 9: ("day", "at", "milli")}
FILTERS = {
    "day": "day = DATE '1969-12-30'",
    "at": "at IN (TIMESTAMP '1969-12-31 23:59:59.000003', TIMESTAMP '2100-01-01 00:00:00')",
    "milli": "milli = TIMESTAMP '1970-01-01 00:00:07.007'",
    "price": "price = -0.0000000005",
    "flag": "flag = false",
}
EPOCH = dt.date(1970, 1, 1)


def rows(*numbers: int, more: int = 0) -> pa.Table:
    def row(number: int) -> dict[str, Any]:
        value = (number + more) % 17
        return {
            "id": f"k{number}", "ts": number + more, "part": f"p{number % 3}",
            "day": None if value == 4 else EPOCH + dt.timedelta(days=value - 5),
            "at": None if value == 5 else (value - 9) * 1_000_000 + value - 5, "milli": value * 1001,
            "price": Decimal(value - 8) / Decimal(10**10), "flag": None if value == 6 else value % 5 > 0,
            "amount": 1.5, "ratio": 1.5, "raw": b"r", "local": 1,
        }  # fmt: skip

    return pa.Table.from_pylist([row(number) for number in numbers], SCHEMA)


def made(path: Path, version: int, kind: TableType) -> HudiTable:
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind, version=version
    )
    created = create_table(LocalStorage(str(path)), spec, OPTIONS)
    LocalWriter(now(created)).upsert(rows(*range(30)))
    for column in INDEXED[version]:
        build_index(now(created), index_named("secondary_index", columns=[column]))
    return now(created)


@pytest.fixture(
    params=[
        pytest.param((8, COW), id="8-cow", marks=pytest.mark.slow),
        pytest.param((8, MOR), id="8-mor"),
        pytest.param((9, COW), id="9-cow", marks=pytest.mark.slow),
        pytest.param((9, MOR), id="9-mor"),
    ]
)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    """With rows in three partitions and an index of each type that its version has."""
    return made(tmp_path / "t", *request.param)


def now(table: HudiTable, **options: str) -> HudiTable:
    return table.reload().with_options({**OPTIONS, **options})


def partitions_of(table: HudiTable) -> set[str]:
    return {f"secondary_index_{column}" for column in INDEXED[table.config.version]}


def ids(table: HudiTable, where: str, **options: Any) -> list[str]:
    return sorted(read(now(table), ReadRequest(where=where, **options)).to_arrow()["id"].to_pylist())


def checked(table: HudiTable) -> None:
    """All indexes are there, have an entry for each row, and lead filters to all rows that match."""
    fresh = now(table)
    assert partitions_of(table) <= set(fresh.config.metadata_partitions)
    found = check_metadata_table(fresh)
    assert not found.differences
    assert not found.skipped
    for column in INDEXED[table.config.version]:
        where = FILTERS[column]
        steps = [step.by for step in explain(now(table), ReadRequest(where=where)).steps]
        assert f"by the secondary index {column}" in steps, (where, steps)
        assert ids(table, where) == ids(table, where, metadata=False, data_skipping=False), where
        assert ids(table, where), where


def test_each_action_keeps_them(table: HudiTable) -> None:
    def step(do: Callable[[], object]) -> None:
        do()
        checked(table)

    step(lambda: None)
    step(lambda: LocalWriter(now(table)).upsert(rows(1, 2, 3, 40, 41, more=34)))
    step(lambda: LocalWriter(now(table)).delete(rows(4, 5)))
    if table.config.is_mor:
        step(lambda: compact(now(table)))
    step(lambda: LocalWriter(now(table)).upsert(rows(6, 7, more=40)))
    step(lambda: cluster(now(table, **{"hoodie.clustering.plan.strategy.sort.columns": "ts"})))
    create_savepoint(now(table))
    saved = now(table).timeline.data().completed().last()
    assert saved is not None
    step(lambda: LocalWriter(now(table)).upsert(rows(8, 9, 42, more=50)))
    step(lambda: restore(now(table), saved.requested_time))
    step(lambda: clean(now(table, **{"hoodie.cleaner.commits.retained": "1"})))


def test_columns_whose_values_have_no_known_text_are_refused(table: HudiTable) -> None:
    others = {"day", "milli", "price", "flag", "local", "amount", "ratio", "raw"} - set(INDEXED[table.config.version])
    for column in sorted(others):
        with pytest.raises(UnsupportedError, match=f"column {column} is a"):
            build_index(now(table), index_named("secondary_index", columns=[column]))
    assert len(others) >= 5


@pytest.mark.parametrize(("version", "other"), [(8, 9), (9, 8)])
def test_another_version_keeps_those_that_it_has(
    tmp_path: Path, version: int, other: int, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path / "t", version, COW)
    with caplog.at_level(logging.WARNING):
        change_version(now(table), other)
    LocalWriter(now(table)).upsert(rows(1, 2, more=60))
    kept = set(INDEXED[version]) & set(INDEXED[other])
    there = now(table).config.metadata_partitions
    assert {name for name in there if name.startswith("secondary")} == {f"secondary_index_{each}" for each in kept}
    assert not check_metadata_table(now(table)).differences
    assert ids(table, FILTERS["at"]) == ids(table, FILTERS["at"], metadata=False, data_skipping=False)


def test_a_column_that_becomes_text_has_its_index_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = made(tmp_path / "t", 9, COW)
    texts = rows(1, 2)
    texts = texts.set_column(SCHEMA.get_field_index("day"), "day", pa.array(["1969-12-30", "soon"]))
    LocalWriter(now(table).with_options({"skep.write.columns.become.text": True})).upsert(texts)
    assert "secondary_index_day" in caplog.text
    assert "their columns change their types" in caplog.text
    for step in range(2):
        for where in ("day = '1969-12-30'", "day = 'soon'", "day = '1970-01-02'"):
            assert ids(table, where) == ids(table, where, metadata=False, data_skipping=False), where
            assert ids(table, where), where
        assert ("secondary_index_day" in now(table).config.metadata_partitions) == bool(step)
        assert not check_metadata_table(now(table)).differences
        LocalWriter(now(table)).upsert(rows(20).set_column(2, "day", pa.array(["later"])))


def test_another_scale_of_decimals_has_the_index_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = made(tmp_path / "t", 8, MOR)
    finer = rows(1).set_column(SCHEMA.get_field_index("price"), "price", pa.array([Decimal(1)], pa.decimal128(25, 12)))
    LocalWriter(now(table)).upsert(finer)
    assert "their columns change their types" in caplog.text
    LocalWriter(now(table)).upsert(finer)
    checked(table)


def test_whole_numbers_that_become_fractions_end_their_index(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 9, COW)
    count = pa.schema([*SCHEMA, ("count", pa.int32())])
    counted = pa.table([*rows(*range(30)).columns, pa.array(range(30), pa.int32())], schema=count)
    LocalWriter(now(table)).upsert(counted)
    build_index(now(table), index_named("secondary_index", columns=["count"]))
    halves = pa.table(
        [*rows(2).columns, pa.array([2.5])], schema=count.set(len(SCHEMA), pa.field("count", pa.float64()))
    )
    LocalWriter(now(table)).upsert(halves)
    assert "secondary_index_count" not in now(table).config.metadata_partitions
    LocalWriter(now(table)).upsert(halves)
    assert "secondary_index_count" not in now(table).config.metadata_partitions
    assert ids(table, "count = 3") == ids(table, "count = 3", metadata=False) == ["k3"]
    checked(table)


def test_another_column_of_the_name_has_an_index_of_its_own(tmp_path: Path) -> None:
    names = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("town", pa.string())])
    spec = TableSpec(name="t", schema=names, record_key=("id",), ordering="ts", type=COW, version=9)
    table = create_table(LocalStorage(str(tmp_path / "t")), spec, OPTIONS)
    places = pa.table([["a", "b"], [1, 1], ["Rome", "Oslo"], ["Oslo", "Nice"]], schema=names)
    LocalWriter(now(table)).upsert(places)
    build_index(now(table), index_named("secondary_index", columns=["city"]))
    assert ids(table, "city = 'Oslo'") == ["b"]
    commit_changes(now(table), [DropColumn("city"), RenameColumn("town", "city")], CommitLabel({}, None))
    assert ids(table, "city = 'Oslo'") == ["a"]
    assert "secondary_index_city" in now(table).config.metadata_partitions
    assert not check_metadata_table(now(table)).differences


@given(st.lists(st.one_of(st.none(), st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))), max_size=5))
def test_times_are_counted_in_microseconds_and_days(times: list[dt.datetime | None]) -> None:
    def micros(time: dt.datetime | None) -> str | None:
        return None if time is None else str((time - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1))

    moments = pa.array(times, pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    assert secondary_texts(moments).to_pylist() == [micros(time) for time in times]
    whole = [None if time is None else time.replace(microsecond=time.microsecond // 1000 * 1000) for time in times]
    millis = pa.array(whole, pa.timestamp("ms")).cast(pa.timestamp("ms", "UTC"))
    assert secondary_texts(millis).to_pylist() == [micros(time) for time in whole]
    days = [None if time is None else time.date() for time in times]
    expected = [None if day is None else str((day - EPOCH).days) for day in days]
    assert secondary_texts(pa.array(days, pa.date32())).to_pylist() == expected


@pytest.mark.parametrize(
    ("value", "scale", "text"),
    [("0", 10, "0E-10"), ("0", 2, "0.00"), ("-1.5", 1, "-1.5"), ("0.0000001", 7, "1E-7"), ("0.000001", 6, "0.000001"),
     ("-0.0000000012", 10, "-1.2E-9"), ("12", 0, "12")],
)  # fmt: skip
def test_decimals_are_as_java_writes_them(value: str, scale: int, text: str) -> None:
    values = pa.array([Decimal(value), None], pa.decimal128(38, scale))
    assert secondary_texts(values).to_pylist() == [text, None]
