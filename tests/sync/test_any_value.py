"""Partitions of any values, from a table's rows through its folders to a real metastore, and out of it again."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from skep_catalog.client import Metastore
from skep_catalog.entities import values_of_name
from skep_catalog.entries import MARKER
from skep_catalog.lengths import Lengths
from skep_format.errors import SyncError
from skep_format.names import DEFAULT_PARTITION
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_sync.check import check_table
from skep_sync.planning.locations import same_location
from skep_sync.sync import plan_sync, sync_table
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SPECIAL = st.sampled_from(
    ["%", "/", "=", " ", "a b", "%2F", "a=b/c", "..", "'", '"', "\\", "\t", "ü", "😀", ":", "{}", "#?"]
)
TEXT = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=12)
VALUE = st.none() | SPECIAL | TEXT


def _distinct(values: list[tuple[str | None, str | None]]) -> bool:
    """SQL compares text without the blanks at its end, and so does a metastore's database."""
    spelt = [tuple((one or DEFAULT_PARTITION).rstrip() for one in pair) for pair in values]
    return len(set(spelt)) == len(spelt)


@pytest.mark.metastore
@pytest.mark.filterwarnings("ignore::skep_table.write.flow.EmptyPartitionWarning")  # "" is one of the values
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.tuples(VALUE, VALUE), min_size=1, max_size=4).filter(_distinct))
@example(values=[("%", "/"), ("=", " x"), ("", None), ("a=b/c", "%25")])
def test_values_arrive_as_they_are_and_go_again(
    metastore: Metastore, database: str, tmp_path: Path, values: list[tuple[str | None, str | None]]
) -> None:
    path = tmp_path / uuid.uuid4().hex
    rows = pa.table(
        {
            "id": pa.array([f"k{i}" for i in range(len(values))]),
            "p": pa.array([p for p, _ in values], pa.string()),
            "q": pa.array([q for _, q in values], pa.string()),
        }
    )
    spec = TableSpec(
        name=f"t{path.name}",
        schema=rows.schema,
        record_key=("id",),
        partition_by=("p", "q"),
        hive_style=True,
        url_encode=True,
    )
    create_table(LocalStorage(str(path)), spec)
    LocalWriter(HudiTable.open(str(path))).upsert(rows)
    table = HudiTable.open(str(path))
    name = table.config.name
    sync_table(table, metastore, database)
    wanted = {tuple(one or DEFAULT_PARTITION for one in pair) for pair in values}
    found = {partition.values: partition for partition in metastore.partitions(database, name)}
    assert found.keys() == wanted
    assert {values_of_name(text) for text in metastore.partition_names(database, name)} == wanted
    for folder in table.view().partitions():
        assert any(same_location(one.storage.location, table.storage.uri(folder)) for one in found.values())
    assert not plan_sync(table, metastore, database, full=True)

    dropped = table.view().partitions()[0]
    LocalWriter(table).delete_partitions([dropped.replace("*", "%2A")])
    sync_table(table.reload(), metastore, database)
    left = {partition.storage.location for partition in metastore.partitions(database, name)}
    assert len(left) == len(wanted) - 1
    assert not any(same_location(location, table.storage.uri(dropped)) for location in left)
    assert not plan_sync(table.reload(), metastore, database, full=True)


def written(path: Path, values: object, more: object = None, **spec: object) -> HudiTable:
    """A table with one more row for each value of its partition column `p`, and `q` where it is given."""
    columns = {"p": values, **({} if more is None else {"q": more})}
    rows = pa.table({"id": [uuid.uuid4().hex for _ in values], **columns})  # type: ignore[attr-defined]
    storage = LocalStorage(str(path))
    if not storage.exists(".hoodie/hoodie.properties"):
        keys = tuple(columns)
        create_table(
            storage, TableSpec(name=path.name, schema=rows.schema, record_key=("id",), partition_by=keys, **spec)
        )
    LocalWriter(HudiTable.open(str(path))).upsert(rows)
    return HudiTable.open(str(path))


def folders(metastore: Metastore, database: str, name: str) -> dict[tuple[str, ...], str]:
    """The folders of an entry's partitions, by their values."""
    found = metastore.partitions(database, name)
    return {p.values: str(p.storage.location).partition(f"/{name}/")[2] for p in found}


@pytest.mark.metastore
@pytest.mark.parametrize("kind", TableType)
def test_a_partition_that_the_metastore_takes_for_another_is_named_and_the_others_come(
    metastore: Metastore, database: str, tmp_path: Path, kind: TableType
) -> None:
    """Derby, MySQL and SQL Server compare texts without the blanks at their end: they hold `good1` or `good1 `."""
    path, reason = tmp_path / "blanks", r"partition 'p=good1 ': the metastore's database does not distinguish"
    table = written(path, ["good1", "good1 ", "x"], hive_style=True, type=kind)
    for _ in range(2):
        with pytest.raises(SyncError, match=rf"what fits is done; can't be registered: {reason} it from 'p=good1'"):
            sync_table(table, metastore, database)
        assert folders(metastore, database, "blanks") == {("good1",): "p=good1", ("x",): "p=x"}
        assert MARKER not in metastore.table(database, "blanks").parameters, "what is missing is known to be missing"
    findings = {(finding.aspect, finding.what) for finding in check_table(table, metastore, database).findings}
    assert any(aspect == "refused" and "'p=good1 '" in what for aspect, what in findings)
    assert not any(aspect == "partitions" for aspect, _ in findings)
    with pytest.raises(SyncError, match=reason):
        sync_table(written(path, ["y"]), metastore, database)
    assert folders(metastore, database, "blanks").keys() == {("good1",), ("x",), ("y",)}
    # the other one is registered first, and comes alone
    sync_table(written(tmp_path / "late", ["good1 "], hive_style=True, type=kind), metastore, database)
    with pytest.raises(SyncError, match=r"partition 'p=good1': .* does not distinguish it from 'p=good1 '"):
        sync_table(written(tmp_path / "late", ["good1", "x"]), metastore, database)
    assert folders(metastore, database, "late") == {("good1 ",): "p=good1 ", ("x",): "p=x"}


@pytest.mark.metastore
def test_partitions_that_a_metastore_refuses_are_found_one_by_one(
    metastore: Metastore, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For whatever reason: here values that only the server knows to be too long, of a path in two folders."""
    monkeypatch.setattr(Metastore, "lengths", Lengths(partition_value=1000))
    long = [f"{letter * 200}/{letter * 200}" for letter in "wy"]
    table = written(tmp_path / "t", [*(f"{i:03}" for i in range(9)), *long, "x"], hive_style=True)
    with pytest.raises(SyncError, match=r"registered: partition 'p=www.*; partition 'p=yyy.*refused add_partitions"):
        sync_table(table, metastore, database)
    assert folders(metastore, database, "t").keys() == {*((f"{i:03}",) for i in range(9)), ("x",)}
    assert MARKER not in metastore.table(database, "t").parameters


@pytest.mark.metastore
def test_values_with_equals_signs_and_slashes(metastore: Metastore, database: str, tmp_path: Path) -> None:
    """Hudi's sync tool refuses such paths, its reader for Spark finds these values in them. What is not distinct in
    the path of two keys is named, and the others are registered."""
    sync_table(written(tmp_path / "one", ["a=b", "a/b", "c=d/e", "x"], hive_style=True), metastore, database)
    assert folders(metastore, database, "one") == {
        ("a=b",): "p=a=b",
        ("a/b",): "p=a/b",
        ("c=d/e",): "p=c=d/e",
        ("x",): "p=x",
    }
    two = written(tmp_path / "two", ["a=b", "a/b", "x"], ["1", "2", "y=z"], hive_style=True)
    with pytest.raises(SyncError, match=r"partition path 'p=a/b/q=2' has 3 values by .*, the table 2 partition keys"):
        sync_table(two, metastore, database)
    assert folders(metastore, database, "two") == {("a=b", "1"): "p=a=b/q=1", ("x", "y=z"): "p=x/q=y=z"}
    assert any(finding.aspect == "refused" for finding in check_table(two, metastore, database).findings)
    plain = written(tmp_path / "plain", ["2024/01", "2024-01", "x"])
    with pytest.raises(SyncError, match="'2024-01' and '2024/01' have the same values 2024-01"):
        sync_table(plain, metastore, database)
    assert folders(metastore, database, "plain") == {("2024-01",): "2024-01", ("x",): "x"}


WHEN = dt.datetime(2020, 1, 2, 3, 4, 5)
TIMES = "hoodie.keygen.timebased."
FORMATTED = {f"{TIMES}timestamp.type": "EPOCHMILLISECONDS", f"{TIMES}output.dateformat": "yyyy-MM-dd"}


@pytest.mark.metastore
@pytest.mark.parametrize(
    ("values", "spec", "kind", "folder"),
    [
        (pa.array([WHEN], pa.timestamp("us", "UTC")), {}, "bigint", "1577934245000000"),
        (pa.array([WHEN], pa.timestamp("ms")), {}, "bigint", "1577934245000"),
        (
            pa.array([WHEN], pa.timestamp("us", "UTC")),
            {"properties": {"hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true"}},
            "timestamp",
            "2020-01-02 03:04:05.0",
        ),
        (pa.array([1577934245000]), {"key_generator": "TIMESTAMP", "properties": FORMATTED}, "string", "2020-01-02"),
        (
            pa.array([1577934245000]),
            {"key_generator": "TIMESTAMP", "properties": {**FORMATTED, f"{TIMES}output.dateformat": "yyyyMMdd"}},
            "bigint",
            "20200102",
        ),
        (pa.array([dt.time(1, 2, 3)], pa.time64("us")), {}, "bigint", "3723000000"),
    ],
)
def test_a_key_has_the_type_of_its_folders_names(
    metastore: Metastore,
    database: str,
    tmp_path: Path,
    values: pa.Array,
    spec: dict[str, object],
    kind: str,
    folder: str,
) -> None:
    """Hudi's sync tool registers timestamps as bigint by default; engines read a key's values from these names."""
    table = written(tmp_path / "t", values, **spec)
    sync_table(table, metastore, database)
    entry = metastore.table(database, "t")
    assert [key.type for key in entry.partition_keys] == [kind]
    assert folders(metastore, database, "t") == {(folder,): folder}
    assert not check_table(table, metastore, database)


@pytest.mark.metastore
def test_a_key_of_numbers_that_is_registered_as_timestamp_is_corrected(
    metastore: Metastore, database: str, tmp_path: Path
) -> None:
    table = written(tmp_path / "t", pa.array([WHEN], pa.timestamp("us", "UTC")))
    sync_table(table, metastore, database)
    entry = metastore.table(database, "t")
    keys = tuple(replace(key, type="timestamp") for key in entry.partition_keys)
    metastore.alter_table(database, "t", replace(entry, partition_keys=keys))
    assert [key.type for key in metastore.table(database, "t").partition_keys] == ["timestamp"]
    sync_table(
        written(tmp_path / "t", pa.array([WHEN.replace(year=2021)], pa.timestamp("us", "UTC"))), metastore, database
    )
    assert [key.type for key in metastore.table(database, "t").partition_keys] == ["bigint"]
    assert len(folders(metastore, database, "t")) == 2
