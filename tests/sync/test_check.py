"""What a check finds: each place where engines look, put wrong in turn."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from skep_catalog.client import Metastore
from skep_catalog.entities import Table
from skep_sync.check import CheckReport, check_table
from skep_sync.locations import same_location
from skep_sync.sync import sync_table
from skep_table.table import HudiTable

pytestmark = pytest.mark.metastore

SCHEMA = "spark.sql.sources.schema.part.0"


def hide_last_column(entry: Table) -> Table:
    return replace(entry, storage=replace(entry.storage, columns=entry.storage.columns[:-1]))


def age_spark_schema(entry: Table) -> Table:
    schema = json.loads(entry.parameters[SCHEMA])
    schema["fields"].pop()
    return replace(entry, parameters={**entry.parameters, SCHEMA: json.dumps(schema)})


def move(entry: Table) -> Table:
    return replace(entry, storage=replace(entry.storage, serde_parameters={"path": "/nowhere"}))


def forget_marker(entry: Table) -> Table:
    kept = {key: value for key, value in entry.parameters.items() if not key.startswith("last_commit")}
    return replace(entry, parameters=kept)


def aspects(report: CheckReport) -> set[str]:
    return {finding.aspect for finding in report.findings}


@pytest.mark.parametrize(
    ("damage", "aspect", "engines"),
    [
        (hide_last_column, "columns", ("Hive", "Trino", "Presto")),
        (age_spark_schema, "Spark schema", ("Spark",)),
        (move, "settings", ("Hive", "Trino", "Presto", "Spark")),
        (forget_marker, "timeline", ("Hive", "Trino", "Presto", "Spark")),
    ],
)
def test_an_entry_put_wrong_is_told_with_those_who_read_it(
    golden: Path,
    metastore: Metastore,
    database: str,
    damage: Callable[[Table], Table],
    aspect: str,
    engines: tuple[str, ...],
) -> None:
    table = HudiTable.open(str(golden / "0.15.0" / "cow_nonpartitioned" / "table"))
    assert aspects(check_table(table, metastore, database)) == {"entry"}
    sync_table(table, metastore, database)
    assert not check_table(table, metastore, database)
    metastore.alter_table(database, "cow_nonpartitioned", damage(metastore.table(database, "cow_nonpartitioned")))
    report = check_table(table, metastore, database)
    assert aspects(report) == {aspect}
    assert {finding.engines for finding in report.findings} == {engines}
    assert json.loads(json.dumps(report.to_json()))["findings"]


def test_partitions_missing_stale_elsewhere_and_of_other_columns(
    golden: Path, metastore: Metastore, database: str
) -> None:
    table = HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table"))
    sync_table(table, metastore, database)
    first, second, third = metastore.partitions(database, "cow_upsert")
    list(metastore.add_partitions(database, "cow_upsert", [replace(first, values=("nowhere",), origin=None)]))
    moved = replace(second, storage=replace(second.storage, location="file:///elsewhere/x"))
    older = replace(third, storage=replace(third.storage, columns=third.storage.columns[:-1]))
    list(metastore.alter_partitions(database, "cow_upsert", [moved, older]))
    report = check_table(table, metastore, database)
    assert aspects(report) == {"partitions", "locations", "partition columns"}
    assert "not in the table any more: 1 partition (city=nowhere)" in str(report)
    repaired = sync_table(table, metastore, database, full=True)
    done = {"partitions moved": 1, "partitions' columns corrected": 1, "partitions dropped": 1}
    assert repaired.counts == done
    assert not check_table(table, metastore, database)


def test_a_partition_of_another_folder_of_the_table(golden: Path, metastore: Metastore, database: str) -> None:
    table = HudiTable.open(str(golden / "0.15.0" / "cow_upsert" / "table"))
    sync_table(table, metastore, database)
    first, second, _ = metastore.partitions(database, "cow_upsert")
    list(metastore.alter_partitions(database, "cow_upsert", [replace(first, storage=second.storage)]))
    assert aspects(check_table(table, metastore, database)) == {"locations"}
    sync_table(table, metastore, database, full=True)
    (mended,) = metastore.partitions(database, "cow_upsert", ["city=" + first.values[0]])
    assert same_location(mended.storage.location, first.storage.location)


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
