"""What a check finds: each place where engines look, put wrong in turn."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skep_catalog.client import Metastore
from skep_catalog.entities import Column, TableEntry
from skep_sync.check import CheckReport, check_table
from skep_sync.planning.locations import same_location
from skep_sync.sync import sync_table
from skep_table.table import HudiTable

pytestmark = pytest.mark.metastore

SCHEMA = "spark.sql.sources.schema.part.0"
TEXT_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"


def hide_last_column(entry: TableEntry) -> TableEntry:
    return replace(entry, storage=replace(entry.storage, columns=entry.storage.columns[:-1]))


def age_spark_schema(entry: TableEntry) -> TableEntry:
    schema = json.loads(entry.parameters[SCHEMA])
    schema["fields"].pop()
    return replace(entry, parameters={**entry.parameters, SCHEMA: json.dumps(schema)})


def move(entry: TableEntry) -> TableEntry:
    return replace(entry, storage=replace(entry.storage, serde_parameters={"path": "/nowhere"}))


def forget_marker(entry: TableEntry) -> TableEntry:
    kept = {key: value for key, value in entry.parameters.items() if not key.startswith("last_commit")}
    return replace(entry, parameters=kept)


def let_drop_delete(entry: TableEntry) -> TableEntry:
    return replace(entry, table_type="MANAGED_TABLE", parameters={**entry.parameters, "EXTERNAL": "FALSE"})


def read_as_optimized(entry: TableEntry) -> TableEntry:
    parameters = {**entry.storage.serde_parameters, "hoodie.query.as.ro.table": "true"}
    return replace(entry, storage=replace(entry.storage, serde_parameters=parameters))


def read_with_another_class(entry: TableEntry) -> TableEntry:
    return replace(entry, storage=replace(entry.storage, serde_library=TEXT_SERDE))


def aspects(report: CheckReport) -> set[str]:
    return {finding.aspect for finding in report.findings}


@pytest.mark.parametrize(
    ("damage", "aspect", "engines"),
    [
        (hide_last_column, "columns", ("Hive", "Trino", "Presto")),
        (age_spark_schema, "Spark schema", ("Spark",)),
        (move, "settings", ("Hive", "Trino", "Presto", "Spark")),
        (let_drop_delete, "settings", ("Hive", "Trino", "Presto", "Spark")),
        (read_as_optimized, "settings", ("Hive", "Trino", "Presto", "Spark")),
        (read_with_another_class, "settings", ("Hive", "Trino", "Presto", "Spark")),
        (forget_marker, "timeline", ("Hive", "Trino", "Presto", "Spark")),
    ],
)
def test_an_entry_put_wrong_is_reported_with_those_who_read_it(
    golden_copy: Callable[..., HudiTable],
    metastore: Metastore,
    database: str,
    damage: Callable[[TableEntry], TableEntry],
    aspect: str,
    engines: tuple[str, ...],
) -> None:
    table = golden_copy("0.15.0", "cow_nonpartitioned")
    assert aspects(check_table(table, metastore, database)) == {"entry"}
    sync_table(table, metastore, database)
    assert not check_table(table, metastore, database)
    metastore.alter_table(database, "cow_nonpartitioned", damage(metastore.table(database, "cow_nonpartitioned")))
    report = check_table(table, metastore, database)
    assert aspects(report) == {aspect}
    assert {finding.engines for finding in report.findings} == {engines}
    assert json.loads(json.dumps(report.to_json()))["findings"]
    sync_table(table, metastore, database, full=True)
    assert not check_table(table, metastore, database)
    entry = metastore.table(database, "cow_nonpartitioned")
    assert (entry.table_type, entry.parameters["EXTERNAL"]) == ("EXTERNAL_TABLE", "TRUE")


def test_partitions_missing_stale_elsewhere_and_of_other_columns(
    golden: Path, metastore: Metastore, database: str
) -> None:
    table = HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table"))
    sync_table(table, metastore, database)
    first, second, third = metastore.partitions(database, "cow_upsert")
    metastore.add_partitions(database, "cow_upsert", [replace(first, values=("nowhere",), origin=None)])
    moved = replace(second, storage=replace(second.storage, location="file:///elsewhere/x"))
    older = replace(third, storage=replace(third.storage, columns=third.storage.columns[:-1]))
    metastore.alter_partitions(database, "cow_upsert", [moved, older])
    report = check_table(table, metastore, database)
    assert aspects(report) == {"partitions", "locations", "partition columns"}
    assert "no longer in the table: 1 partition (city=nowhere)" in str(report)
    repaired = sync_table(table, metastore, database, full=True)
    done = {"partitions moved": 1, "partitions' columns corrected": 1, "partitions dropped": 1}
    assert repaired.counts == done
    assert not check_table(table, metastore, database)


def test_a_partition_of_another_folder_of_the_table(golden: Path, metastore: Metastore, database: str) -> None:
    table = HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table"))
    sync_table(table, metastore, database)
    first, second, _ = metastore.partitions(database, "cow_upsert")
    metastore.alter_partitions(database, "cow_upsert", [replace(first, storage=second.storage)])
    assert aspects(check_table(table, metastore, database)) == {"locations"}
    sync_table(table, metastore, database, full=True)
    (mended,) = metastore.partitions(database, "cow_upsert", ["city=" + first.values[0]])
    assert same_location(mended.storage.location, first.storage.location)


@pytest.mark.parametrize(
    ("aspect", "damage"),
    [
        ("input format", {"input_format": "org.apache.hadoop.mapred.TextInputFormat"}),
        ("output format", {"output_format": "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"}),
        ("serde library", {"serde_library": TEXT_SERDE}),
        ("serde parameters", {"serde_parameters": {"serialization.format": ",", "mine": "stays"}}),
        ("stored as subdirectories", {"stored_as_subdirectories": True}),
        ("buckets", {"bucket_columns": ("id",), "num_buckets": 4}),
        ("columns", {"columns": (Column("id", "string"),)}),
    ],
)
def test_a_partition_that_hive_reads_otherwise(
    golden_copy: Callable[..., HudiTable], metastore: Metastore, database: str, aspect: str, damage: dict[str, Any]
) -> None:
    table = golden_copy("0.15.0", "cow_upsert")
    sync_table(table, metastore, database)
    first, second, third = metastore.partitions(database, "cow_upsert")
    metastore.alter_partitions(database, "cow_upsert", [replace(first, storage=replace(first.storage, **damage))])
    calls = metastore.calls
    report = check_table(table, metastore, database)
    assert metastore.calls - calls <= 4, "an entry twice, the partitions' names and the partitions, each once"
    assert aspects(report) == {f"partition {aspect}"}
    assert f"1 partition (city={first.values[0]})" in str(report)
    done = sync_table(table, metastore, database, full=True)
    assert done.counts == {f"partitions' {aspect} corrected": 1}
    assert not check_table(table, metastore, database)
    mended = list(metastore.partitions(database, "cow_upsert"))
    assert [p.storage for p in mended[1:]] == [second.storage, third.storage]
    assert mended[0].storage.location == first.storage.location
    assert mended[0].storage.serde_parameters.get("mine") == damage.get("serde_parameters", {}).get("mine")


def test_columns_of_an_entry_in_another_order(
    golden_copy: Callable[..., HudiTable], metastore: Metastore, database: str
) -> None:
    """A metastore refuses the right order, place by place; the partitions, which have it, are not to blame."""
    table = golden_copy("0.15.0", "cow_upsert")
    sync_table(table, metastore, database)
    entry = metastore.table(database, "cow_upsert")
    columns, partitions = entry.storage.columns, list(metastore.partitions(database, "cow_upsert"))
    for wrong in (columns[:1], columns[:1] + columns[:0:-1]):  # in two steps, as it would refuse this, too
        storage = replace(entry.storage, columns=wrong)
        metastore.alter_table(database, "cow_upsert", replace(entry, storage=storage))
    report = check_table(table, metastore, database)
    assert aspects(report) == {"columns"}
    assert "column order" in str(report)
    sync_table(table, metastore, database, full=True)
    assert metastore.table(database, "cow_upsert").storage.columns == columns
    assert [p.storage for p in metastore.partitions(database, "cow_upsert")] == [p.storage for p in partitions]
    assert not check_table(table, metastore, database)


def test_a_column_that_came_in_the_middle_remains_last_in_new_partitions_too(
    metastore: Metastore, database: str, write: Callable[..., HudiTable]
) -> None:
    sync_table(write("t", 1, day="a", note="x"), metastore, database)
    table = write("t", 2, day="b", count=1, note="y")
    sync_table(table, metastore, database)
    names = [column.name for column in metastore.table(database, "t").storage.columns]
    sync_table(write("t", 3, day="c", count=1, note="y"), metastore, database)
    for partition in metastore.partitions(database, "t"):
        assert [column.name for column in partition.storage.columns] == names
    assert not check_table(table.reload(), metastore, database)


def test_a_partition_key_of_another_type(
    golden_copy: Callable[..., HudiTable], metastore: Metastore, database: str
) -> None:
    table = golden_copy("0.15.0", "cow_upsert")
    sync_table(table, metastore, database)
    entry = metastore.table(database, "cow_upsert")
    key = replace(entry.partition_keys[0], type="int")
    metastore.alter_table(database, "cow_upsert", replace(entry, partition_keys=(key,)))
    report = check_table(table, metastore, database)
    assert aspects(report) == {"columns"}
    assert "type of partition key city: int → string" in str(report)
    sync_table(table, metastore, database, full=True)
    assert metastore.table(database, "cow_upsert").partition_keys == entry.partition_keys
    assert not check_table(table, metastore, database)


def test_files_that_the_metadata_table_and_the_folder_differ_in(
    golden: Path, tmp_path: Path, metastore: Metastore, database: str
) -> None:
    """A base file is lost: the metadata table still lists it."""
    source = next(
        folder / "table"
        for folder in sorted((golden / "1.1.1").iterdir())
        if (folder / "table").is_dir() and HudiTable.open(str(folder / "table")).metadata_table() is not None
    )
    shutil.copytree(source, tmp_path / "t")
    table = HudiTable.open(str(tmp_path / "t"))
    sync_table(table, metastore, database)
    assert not check_table(table, metastore, database)
    view = table.view()
    lost = next(s.base_file.path for path in view.partitions() for s in view.slices(path) if s.base_file is not None)
    (tmp_path / "t" / lost).unlink()
    assert "files" in aspects(check_table(table.reload(), metastore, database))
