"""`hoodie.bloom.index.use.metadata`: the metadata table's statistics and filters decide which base files are opened."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counting_storage import CountingStorage
from golden_metadata import RELEASES
from own_record_index import KEPT, live_keys

from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import METADATA_PARTITIONS, update_table_config
from skep_table.table import HudiTable
from skep_table.write.indexes import index_of
from skep_table.write.indexes.bloom_lookup import BloomIndex, BloomLookUp, MetadataIndexWarning
from skep_table.write.indexes.tagging import Tagging, locate
from skep_table.write.planning.candidates import CandidateFiles, candidate_files

# 0.15.0 was made with a list of columns, without the record key.
RELEASES_OF_KEYS = [release for release in RELEASES if release != "0.15.0"]
BY_METADATA = {"hoodie.bloom.index.use.metadata": "true", **KEPT}


def look_ups(table: HudiTable, is_global: bool) -> tuple[CandidateFiles, BloomLookUp, BloomLookUp]:
    """By the footers, and by the metadata table."""
    files = candidate_files(table, table.view().partitions())
    by_footers, by_metadata = (BloomIndex(is_global, by_metadata=by) for by in (False, True))
    return files, by_footers.look_up(table, files), by_metadata.look_up(table, files)


def found_by(look_up: BloomLookUp, files: CandidateFiles, keyed: pa.Table) -> list[int]:
    numbers: list[int] = locate(Tagging(look_up, files), keyed, ThreadRunner(2)).numbers.tolist()
    return numbers


def asked(keys: Sequence[str], paths: Sequence[str]) -> pa.Table:
    return pa.table({"_hoodie_record_key": list(keys), "_hoodie_partition_path": list(paths)})


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("release", RELEASES_OF_KEYS)
def test_the_same_keys_are_found(golden: Path, release: str, is_global: bool) -> None:
    table = HudiTable.open(golden / release / "cow_column_stats" / "table", KEPT)
    files, by_footers, by_metadata = look_ups(table, is_global)
    assert by_metadata.filters is not None
    assert by_metadata.ranges is not None
    assert all(each is not None and each.low is not None for each in by_metadata.ranges)
    live = live_keys(table)
    keys, paths = live.column("key").to_pylist(), live.column("partition").to_pylist()
    every = asked([*keys, *keys, "none"], [*paths, *reversed(paths), paths[0]])
    expected = found_by(by_footers, files, every)
    assert found_by(by_metadata, files, every) == expected
    assert found_by(pickle.loads(pickle.dumps(by_metadata)), files, every) == expected
    assert min(expected[: len(keys)]) >= 0
    assert expected[-1] < 0


@pytest.mark.parametrize("release", RELEASES_OF_KEYS)
def test_only_files_that_may_hold_a_key_are_opened(golden: Path, release: str) -> None:
    storage = CountingStorage(LocalStorage(str(golden / release / "cow_column_stats" / "table")))
    table = HudiTable.open(storage, KEPT)
    live = live_keys(table).sort_by("key")
    places = pc.binary_join_element_wise(live.column("partition"), live.column("file_id"), "/")
    assert pc.count_distinct(places).as_py() > 1
    files, _, by_metadata = look_ups(table, is_global=True)
    middle = live.column("key")[len(live) // 2].as_py()
    for keys, opened in (([f"{middle}~", "~", "!"], 0), ([middle, f"{middle}~"], 1)):
        storage.calls.clear()
        numbers = found_by(by_metadata, files, asked(keys, ["" for _ in keys]))
        assert sum(number >= 0 for number in numbers) == opened
        assert len({path for path in storage.calls.paths() if path.endswith(".parquet")}) == opened


@pytest.mark.parametrize("kept", ["", "files", "files,column_stats", "files,bloom_filters"])
def test_what_is_missing_is_read_from_the_footers_with_a_warning(golden: Path, tmp_path: Path, kept: str) -> None:
    shutil.copytree(golden / "1.0.2/cow_column_stats/table", tmp_path / "t")
    update_table_config(LocalStorage(str(tmp_path / "t")), {METADATA_PARTITIONS: kept or None})
    table = HudiTable.open(tmp_path / "t", KEPT)
    names = {"bloom_filters": "Bloom filters", "column_stats": "statistics of _hoodie_record_key"}
    missing = " and ".join(text for name, text in names.items() if name not in kept)
    with pytest.warns(MetadataIndexWarning, match=f"with {missing} that"):
        files, by_footers, by_metadata = look_ups(table, is_global=True)
    live = live_keys(table)
    every = asked([*live.column("key").to_pylist(), "none"], [*live.column("partition").to_pylist(), ""])
    assert found_by(by_metadata, files, every) == found_by(by_footers, files, every)
    assert (by_metadata.filters is not None, by_metadata.ranges is not None) == ("bloom" in kept, "column" in kept)


def test_statistics_of_other_columns_are_none_of_the_keys(golden: Path) -> None:
    table = HudiTable.open(golden / "0.15.0/cow_column_stats/table", KEPT)
    with pytest.warns(MetadataIndexWarning, match="with statistics of _hoodie_record_key that"):
        files, by_footers, by_metadata = look_ups(table, is_global=False)
    assert by_metadata.filters is not None
    assert by_metadata.ranges is None
    live = live_keys(table)
    every = asked([*live.column("key").to_pylist(), "none"], [*live.column("partition").to_pylist(), ""])
    assert found_by(by_metadata, files, every) == found_by(by_footers, files, every)


@pytest.mark.parametrize("name", ["BLOOM", "GLOBAL_BLOOM", "SIMPLE"])
def test_it_is_an_option_of_the_bloom_indexes(golden: Path, name: str) -> None:
    config = HudiTable.open(golden / "0.15.0/cow_column_stats/table").config
    index = index_of(config, Options({"hoodie.index.type": name, **BY_METADATA}))
    assert isinstance(index, BloomIndex)
    assert index.by_metadata is (name != "SIMPLE")
    assert not index_of(config, Options({"hoodie.index.type": name})).by_metadata  # type: ignore[attr-defined]
