"""Tables of versions before 6 are synced like others; what their settings do not state has to be stated by options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skep_catalog.client import Metastore
from skep_catalog.entities import Database, TableEntry
from skep_format.errors import TableMismatchError
from skep_format.options import Options
from skep_sync.options import SyncOptions
from skep_sync.planning.planner import Planner
from skep_sync.planning.steps import AddPartitions, CreateEntry
from skep_table.table import HudiTable


class EmptyMetastore(Metastore):
    """It has every database, and nothing in it; no server is called."""

    def database(self, name: str) -> Database:
        return Database(name)

    def find_tables(self, database: str, names: Sequence[str]) -> dict[str, TableEntry | None]:
        return dict.fromkeys(names)


def planned(table: HudiTable, **options: str) -> list[Any]:
    """The steps of a first sync."""
    given = SyncOptions.of(Options({f"hoodie.datasource.hive_sync.{key}": text for key, text in options.items()}))
    with EmptyMetastore.connect("thrift://127.0.0.1:1") as empty:
        return list(Planner(table, empty, "d", "t", given).plan().steps)


def without(table: HudiTable, *keys: str) -> HudiTable:
    config = table.config
    kept = {key: text for key, text in config.raw.items() if key not in keys}
    return HudiTable.with_settings(table.context, type(config).parse(kept))


@pytest.mark.parametrize("case", ["v0_mor", "v2_mor", "v3_mor", "v5_mor", "v0_cow", "v4_cow"])
def test_entries_and_partitions_of_an_older_table(older_golden: Path, case: str) -> None:
    steps = planned(HudiTable.open(older_golden / case / "table"))
    entries = [step.table for step in steps if isinstance(step, CreateEntry)]
    assert [entry.name for entry in entries] == (["t_ro", "t_rt", "t"] if "mor" in case else ["t"])
    for entry in entries:
        assert [key.name for key in entry.partition_keys] == ["day"]
    for step in (step for step in steps if isinstance(step, AddPartitions)):
        assert sorted(partition.values for partition in step.partitions) == [("2021-03-01",), ("2021-03-02",)]


def test_folders_whose_columns_nothing_states_are_refused(older_golden: Path) -> None:
    table = without(HudiTable.open(older_golden / "v1_cow" / "table"), "hoodie.table.partition.fields")
    with pytest.raises(TableMismatchError, match="lies in folders such as '2021-03-0") as caught:
        planned(table)
    assert caught.value.fields["option"] == "hoodie.datasource.hive_sync.partition_fields"
    (entry,) = (step.table for step in planned(table, partition_fields="day") if isinstance(step, CreateEntry))
    assert [key.name for key in entry.partition_keys] == ["day"]
