"""Copies of entries before a change, and the way back; views of an earlier strategy; cascades of columns."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from skep_catalog.client import Metastore
from skep_catalog.entities import Column
from skep_format.errors import InputError
from skep_sync.backup import FOLDER, backups
from skep_sync.restore import restore_entries
from skep_sync.sync import plan_sync, sync_table
from skep_sync.values import canonical_value
from skep_table.table import HudiTable

pytestmark = pytest.mark.metastore

STRATEGY = "hoodie.datasource.hive_sync.table.strategy"


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Callable[[str], HudiTable]:
    def make(case: str) -> HudiTable:
        shutil.copytree(golden / "0.15.0" / case / "table", tmp_path / case)
        return HudiTable.open(str(tmp_path / case))

    return make


def change(metastore: Metastore, database: str, name: str) -> None:
    """As somebody else would: a column less, a parameter more."""
    entry = metastore.table(database, name)
    storage = replace(entry.storage, columns=entry.storage.columns[:-1], serde_parameters={"by": "hand"})
    metastore.alter_table(
        database, name, replace(entry, storage=storage, parameters={**entry.parameters, "by": "hand"})
    )


def without_time(parameters: object) -> dict[str, str]:
    return {k: v for k, v in dict(parameters).items() if not k.startswith("transient_")}  # type: ignore[call-overload]


def test_columns_parameters_and_serde_come_back(
    copy: Callable[[str], HudiTable], metastore: Metastore, database: str
) -> None:
    table = copy("cow_upsert")
    sync_table(table, metastore, database)
    assert backups(table.storage) == [], "making an entry changes none"
    change(metastore, database, "cow_upsert")
    before = metastore.table(database, "cow_upsert")
    sync_table(table, metastore, database)
    synced = metastore.table(database, "cow_upsert")
    assert synced.storage.columns != before.storage.columns
    (kept,) = backups(table.storage, metastore.uri)
    assert kept.table.storage == before.storage
    assert backups(table.storage, "thrift://127.0.0.1:1") == [kept], "an embedded metastore changes its port"
    assert backups(table.storage, "thrift://other:9083") == []

    (back,) = restore_entries(table, metastore, database)
    assert back.changes
    entry = metastore.table(database, "cow_upsert")
    assert entry.storage == before.storage
    assert without_time(entry.parameters) == without_time(before.parameters)
    # The restore kept the entry it replaced, so it can be undone.
    restore_entries(table, metastore, database)
    assert metastore.table(database, "cow_upsert").storage == synced.storage
    assert not plan_sync(table, metastore, database, full=True)


def test_a_dropped_entry_is_made_again(copy: Callable[[str], HudiTable], metastore: Metastore, database: str) -> None:
    table = copy("cow_upsert")
    sync_table(table, metastore, database)
    change(metastore, database, "cow_upsert")
    sync_table(table, metastore, database)
    (kept,) = backups(table.storage)
    metastore.drop_table(database, "cow_upsert")
    (back,) = restore_entries(table, metastore, database, backup_id=kept.id)
    assert back.created
    assert metastore.table(database, "cow_upsert").storage == kept.table.storage


def test_no_copy_is_reported(copy: Callable[[str], HudiTable], metastore: Metastore, database: str) -> None:
    with pytest.raises(InputError, match=f"no copy of {database}.cow_upsert"):
        restore_entries(copy("cow_upsert"), metastore, database)


def test_copies_are_few_and_lie_outside_of_the_timeline(
    copy: Callable[[str], HudiTable], metastore: Metastore, database: str
) -> None:
    table = copy("cow_upsert")
    sync_table(table, metastore, database)
    for _ in range(22):
        change(metastore, database, "cow_upsert")
        sync_table(table, metastore, database)
    assert len(list(Path(table.storage.root, FOLDER).iterdir())) == 20
    assert table.reload().timeline.instants == table.timeline.instants


class TestStrategies:
    def test_views_that_skep_made_go_with_their_strategy(
        self, copy: Callable[[str], HudiTable], metastore: Metastore, database: str
    ) -> None:
        table = copy("mor_upsert")
        sync_table(table, metastore, database)
        assert len(metastore.tables(database)) == 3
        report = sync_table(table, metastore, database, options={STRATEGY: "RO"})
        assert report.counts["tables dropped"] == 2
        assert metastore.tables(database) == ["mor_upsert"]
        assert not plan_sync(table, metastore, database, options={STRATEGY: "RO"}, full=True)

    def test_views_that_others_made_stay_and_are_reported(
        self, copy: Callable[[str], HudiTable], metastore: Metastore, database: str
    ) -> None:
        table = copy("mor_upsert")
        sync_table(table, metastore, database)
        for name in metastore.tables(database):
            entry = metastore.table(database, name)
            foreign = {key: value for key, value in entry.parameters.items() if key != "skep.sync.table"}
            metastore.alter_table(database, name, replace(entry, parameters=foreign))
        report = sync_table(table, metastore, database, options={STRATEGY: "RO"})
        assert len(metastore.tables(database)) == 3
        assert sum("earlier strategy" in warning for warning in report.plan.warnings) == 2


@pytest.mark.parametrize(("cascade", "reached"), [("all", True), ("none", False)])
def test_columns_go_to_partitions_by_policy(
    copy: Callable[[str], HudiTable], metastore: Metastore, database: str, cascade: str, reached: bool
) -> None:
    table = copy("cow_upsert")
    sync_table(table, metastore, database)
    entry = metastore.table(database, "cow_upsert")
    old = tuple(Column(c.name, c.type, c.comment) for c in entry.storage.columns[:-1])
    metastore.alter_table(
        database, "cow_upsert", replace(entry, storage=replace(entry.storage, columns=old)), cascade=True
    )
    sync_table(
        table, metastore, database, options={"skep.sync.cascade": cascade, "hoodie.datasource.hive_sync.batch_num": 1}
    )
    for partition in metastore.partitions(database, "cow_upsert"):
        assert (len(partition.storage.columns) == len(entry.storage.columns)) is reached


def test_numbers_and_dates_are_compared_as_such() -> None:
    assert canonical_value("007", "int") == canonical_value("7", "int") == "7"
    assert canonical_value("2024-1-5", "date") == "2024-01-05"
    assert canonical_value("__HIVE_DEFAULT_PARTITION__", "int") == "__HIVE_DEFAULT_PARTITION__"
    assert canonical_value("007", "string") == "007"
