"""Definitions of indexes: those of Hudi read and written again, and which columns their statistics have."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from golden_metadata import RELEASES, opened
from metadata_listings import new_table, reopened, writer

from skep_format.errors import FormatError
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.metadata_table.definitions import INDEX_DEFINITIONS, IndexDefinition, read_definitions
from skep_table.metadata_table.entries import latest
from skep_table.metadata_write.definitions import (
    definitions_of,
    is_partitioned_record_index,
    new_stats_columns,
    stats_columns,
    write_definitions,
)
from skep_table.table import HudiTable

COLUMN_STATS = IndexDefinition("column_stats", "column_stats", "column_stats", ("id", "ts"), {}, "V2")
META = ["_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key"]
LIST = "hoodie.metadata.index.column.stats.column.list"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def given(storage: LocalStorage, document: object) -> None:
    storage.replace_atomic(INDEX_DEFINITIONS, json.dumps(document).encode())


@pytest.mark.parametrize("release", ["1.0.2", "1.1.1"])
@pytest.mark.parametrize("case", ["cow_column_stats", "cow_record_index", "cow_upsert_mdt"])
def test_those_of_hudi_are_written_again_as_they_are(
    golden: Path, release: str, case: str, storage: LocalStorage
) -> None:
    table = HudiTable.open(golden / release / case / "table")
    found = definitions_of(table)
    assert {each.version for each in found.values()} <= ({None} if release == "1.0.2" else {"V1", "V2"})
    write_definitions(storage, found)
    assert json.loads(storage.read(INDEX_DEFINITIONS)) == json.loads(table.storage.read(INDEX_DEFINITIONS))
    assert not is_partitioned_record_index(table)


def test_no_file_is_no_definition(storage: LocalStorage) -> None:
    assert read_definitions(storage) == {}
    write_definitions(storage, {"column_stats": COLUMN_STATS})
    assert read_definitions(storage) == {"column_stats": COLUMN_STATS}
    write_definitions(storage, {})
    assert not storage.exists(INDEX_DEFINITIONS)


def test_what_only_others_know_stays(storage: LocalStorage) -> None:
    later = {"indexName": "column_stats", "engine": "vectors"}
    given(storage, {"format": 7, "indexDefinitions": {"column_stats": later, "dropped": later}})
    write_definitions(storage, {"column_stats": COLUMN_STATS})
    stated = json.loads(storage.read(INDEX_DEFINITIONS))
    assert stated["format"] == 7
    assert list(stated["indexDefinitions"]) == ["column_stats"]
    assert stated["indexDefinitions"]["column_stats"]["engine"] == "vectors"
    assert read_definitions(storage) == {"column_stats": COLUMN_STATS}


@pytest.mark.parametrize(
    "document",
    [
        [], {"indexDefinitions": []}, {"indexDefinitions": {"x": []}},
        {"indexDefinitions": {"x": {"sourceFields": [7]}}}, {"indexDefinitions": {"x": {"indexOptions": ["a"]}}},
        {"indexDefinitions": {"x": {"version": 2}}},
    ],
)  # fmt: skip
def test_a_damaged_file_is_named(storage: LocalStorage, document: object) -> None:
    given(storage, document)
    with pytest.raises(FormatError, match=r"index\.json"):
        read_definitions(storage)


def test_bytes_that_are_no_json_are_named(storage: LocalStorage) -> None:
    storage.replace_atomic(INDEX_DEFINITIONS, b"{")
    with pytest.raises(FormatError, match=r"index\.json"):
        write_definitions(storage, {"column_stats": COLUMN_STATS})


class TestColumns:
    @pytest.mark.parametrize("release", RELEASES)
    def test_of_hudis_tables_are_those_of_its_records(self, golden: Path, release: str) -> None:
        table, metadata = opened(golden, release, "cow_column_stats")
        _, records = latest(metadata._lookup("column_stats", None, "ColumnStatsMetadata"), "ColumnStatsMetadata")
        assert set(stats_columns(table)) == {record["columnName"] for record in records.to_pylist()}

    @pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
    @pytest.mark.filterwarnings("ignore::skep_format.options.IneffectiveOptionWarning")  # of the column that is none
    def test_of_a_new_index(self, tmp_path: Path, table_version: int) -> None:
        table = new_table(tmp_path, TableType.COPY_ON_WRITE)
        every = [*table.stored_schema().with_meta().names()]
        meta = [] if table_version == 6 else META
        assert [*new_stats_columns(table)] == (every if table_version == 6 else [*META, "id", "part", "ts"])
        assert [*new_stats_columns(reopened(table, **{LIST: "ts, id, none"}))] == [*meta, "ts", "id"]
        first = reopened(table, **{"hoodie.metadata.index.column.stats.max.columns.to.index": "1"})
        assert [*new_stats_columns(first)] == (every if table_version == 6 else [*META, "id"])

    @pytest.mark.parametrize("table_version", [9], indirect=True)
    def test_of_an_index_are_its_own(self, tmp_path: Path) -> None:
        table = new_table(tmp_path, TableType.COPY_ON_WRITE)
        write_definitions(table.storage, {"column_stats": COLUMN_STATS})
        assert [*stats_columns(reopened(table, **{LIST: "part"}))] == ["id", "ts"]

    @pytest.mark.parametrize("table_version", [6], indirect=True)
    def test_partition_columns_that_no_file_holds_have_none(self, tmp_path: Path) -> None:
        table = new_table(
            tmp_path, TableType.COPY_ON_WRITE, properties={"hoodie.datasource.write.drop.partition.columns": "true"}
        )
        writer(table).insert(pa.table({"id": ["a"], "part": ["p"], "ts": [1]}))
        assert "part" not in stats_columns(reopened(table))
