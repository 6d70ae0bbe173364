"""Log files of table versions 8 and 9: one of its own for each delta commit, which names the rows it changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skep_format.errors import CorruptFileError
from skep_format.logfile import BlockType, HeaderKey, LogBlock, format_block, format_positions, read_blocks
from skep_format.names import BaseFileName, LogFileName
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.types import RECORD_KEY
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.metadata import WriteStat
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import (
    compact,
    compact_logs,
    execute_pending_compactions,
    schedule_compaction,
)
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.result import WriteResult

SCHEMA = pa.schema({"id": pa.string(), "part": pa.string(), "ts": pa.int64(), "v": pa.int64()})
POSITIONS = {HeaderKey.RECORD_POSITIONS, HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS}
PLAIN = {HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA}
Make = Callable[..., HudiTable]
every_version = pytest.mark.parametrize("version", [8, 9])


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def table(version: int = 9, **spec: Any) -> HudiTable:
        wanted: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **spec}
        storage = LocalStorage(str(tmp_path / f"t{len(list(tmp_path.iterdir()))}"))
        spec = {"name": "t", "schema": SCHEMA, "version": version, "type": TableType.MERGE_ON_READ, **wanted}
        return create_table(storage, TableSpec(**spec))

    return table


def rows(keys: str, ts: int = 1) -> pa.Table:
    return pa.table([list(keys), ["p"] * len(keys), [ts] * len(keys), [ts] * len(keys)], schema=SCHEMA)


def writer(table: HudiTable, **given: str) -> LocalWriter:
    return LocalWriter(options(table, **given))


def options(table: HudiTable, **given: str) -> HudiTable:
    every = {f"hoodie.{key.replace('__', '.')}": value for key, value in given.items()}
    return table.with_context(options=Options(every), runner=ThreadRunner(1))


def logs(result: WriteResult) -> list[WriteStat]:
    return [stat for stat in result.metadata.stats if stat.is_log]


def blocks(table: HudiTable, result: WriteResult) -> list[LogBlock]:
    root = table.storage.root
    return [block for stat in logs(result) for block in read_blocks(pa.OSFile(f"{root}/{stat.path}"), stat.path)]


def found(table: HudiTable) -> dict[str, int]:
    return {row["id"]: row["v"] for row in read(table.reload(), ReadRequest()).to_arrow().to_pylist()}


# -- files and stats ---------------------------------------------------------------------------------------------------


@every_version
def test_each_delta_commit_has_a_log_file_of_its_own(make: Make, version: int) -> None:
    table = make(version)
    writer(table).upsert(rows("abc"))
    for ts in (2, 3):
        result = writer(table).upsert(rows("b", ts))
        time = result.instant.requested_time
        (stat,) = logs(result)
        name = LogFileName.parse(stat.path.rpartition("/")[2])
        assert name is not None
        assert (name.file_id, name.instant_time, name.version) == (stat.file_id, time, 1)
        assert (stat.prev_commit, stat.base_file, stat.log_files) == (time, "", (str(name),))
        assert (stat.log_version, stat.log_offset) == (1, 0)
    assert found(table) == {"a": 1, "b": 3, "c": 1}


@every_version
def test_a_full_file_is_followed_by_the_next_version(make: Make, version: int) -> None:
    table = make(version)
    writer(table).upsert(rows("abcdef"))
    small = {"logfile__max__size": "1", "logfile__data__block__max__size": "100"}
    stats = logs(writer(table, **small).upsert(rows("abcdef", 2)))
    assert [stat.log_version for stat in stats] == list(range(1, len(stats) + 1))
    assert len(stats) > 2
    assert all(stat.log_files == (stat.path.rpartition("/")[2],) for stat in stats)
    assert found(table) == dict.fromkeys("abcdef", 2)


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
@every_version
def test_a_slice_of_logs_only(make: Make, version: int) -> None:
    table = make(version)
    for ts in (1, 2, 3):
        (stat,) = logs(writer(table, index__type="INMEMORY").upsert(rows("ab", ts)))
        assert (stat.log_version, stat.log_files) == (1, (stat.path.rpartition("/")[2],))
    assert found(table) == {"a": 3, "b": 3}


@every_version
def test_rows_then_deletes_with_the_headers_of_1x(make: Make, version: int) -> None:
    marked = SCHEMA.append(pa.field("_hoodie_operation", pa.string()))
    table = make(version, schema=marked)
    first = rows("abc").append_column(marked.field(4), pa.array(["I"] * 3))
    writer(table).upsert(first)
    result = writer(table).upsert(rows("ab", 2).append_column(marked.field(4), pa.array(["U", "D"])))
    data, deletes = blocks(table, result)
    assert (data.type, deletes.type) == (BlockType.AVRO_DATA, BlockType.DELETE)
    for block in (data, deletes):
        assert set(block.headers) == PLAIN | POSITIONS
        assert block.instant_time == result.instant.requested_time
    assert data.schema_text == deletes.schema_text
    assert found(table) == {"a": 2, "c": 1}


@every_version
def test_a_log_compaction_names_the_slice_and_no_positions(make: Make, version: int) -> None:
    table = make(version)
    base = writer(table).upsert(rows("abc"))
    for ts in (2, 3):
        writer(table).upsert(rows("b", ts))
    (done,) = compact_logs(options(table, log__compaction__blocks__threshold="2"))
    (stat,) = table.reload().commit_metadata(done.instant).stats
    assert (stat.prev_commit, stat.base_file) == (base.instant.requested_time, "")
    assert stat.log_files == (stat.path.rpartition("/")[2],)
    (block,) = read_blocks(pa.OSFile(f"{table.storage.root}/{stat.path}"), stat.path)
    assert set(block.headers) == PLAIN | {HeaderKey.COMPACTED_BLOCK_TIMES}


# -- positions ---------------------------------------------------------------------------------------------------------


def keys_at(table: HudiTable, block: LogBlock, path: str) -> list[str]:
    """The keys that the base file has at the positions of a block."""
    import pyarrow.parquet as pq

    positions = block.record_positions
    assert positions is not None
    assert (np.diff(positions.astype(np.int64)) > 0).all()
    keys = pq.read_table(f"{table.storage.root}/{path}", columns=[RECORD_KEY]).column(0)
    return keys.take(pa.array(positions)).to_pylist()


@every_version
@pytest.mark.parametrize("block_format", ["avro", "parquet"])
def test_positions_are_those_of_the_keys_in_the_base_file(make: Make, version: int, block_format: str) -> None:
    table = make(version)
    (base,) = writer(table).upsert(rows("hgfedcba")).metadata.stats
    (block,) = blocks(table, writer(table, logfile__data__block__format=block_format).upsert(rows("bgd", 2)))
    assert keys_at(table, block, base.path) == block.records().column(RECORD_KEY).to_pylist()
    name = BaseFileName.parse(base.path.rpartition("/")[2])
    assert name is not None
    assert block.headers[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS] == name.instant_time
    (block,) = blocks(table, writer(table).delete(rows("ca").select(["id", "part"])))
    assert keys_at(table, block, base.path) == block.deletes().column("record_key").to_pylist()


def test_each_block_of_many_has_its_own(make: Make) -> None:
    table = make()
    (base,) = writer(table).upsert(rows("hgfedcba")).metadata.stats
    found_blocks = blocks(table, writer(table, logfile__data__block__max__size="100").upsert(rows("bgda", 2)))
    assert len(found_blocks) > 1
    for block in found_blocks:
        assert keys_at(table, block, base.path) == block.records().column(RECORD_KEY).to_pylist()


@pytest.mark.parametrize("version", [6, 8, 9])
def test_positions_are_an_option_of_newer_versions(make: Make, version: int) -> None:
    table = make(version)
    writer(table).upsert(rows("abc"))
    for on in ("true", "false"):
        (block,) = blocks(table, writer(table, write__record__positions=on).upsert(rows("b", 2)))
        assert set(block.headers) >= POSITIONS if on == "true" and version != 6 else not POSITIONS & set(block.headers)


def test_no_positions_where_a_row_is_not_in_the_base_file(make: Make) -> None:
    table = make()
    settings = {
        "index__type": "BUCKET",
        "bucket__index__num__buckets": "1",
        "write__record__positions": "true",
    }
    writer(table, **settings).upsert(rows("ab"))
    compact(options(table, compact__inline__max__delta__commits="1", **settings))
    (block,) = blocks(table, writer(table, **settings).upsert(rows("bnew", 2)))
    assert set(block.headers) == PLAIN
    (block,) = blocks(table, writer(table, **settings).upsert(rows("ba", 3)))
    assert set(block.headers) == PLAIN | POSITIONS


def test_no_positions_where_the_base_file_has_a_key_twice(make: Make) -> None:
    table = make()
    writer(table).insert(rows("abb"))
    (block,) = blocks(table, writer(table).upsert(rows("b", 2)))
    assert set(block.headers) == PLAIN
    (block,) = blocks(table, writer(table).upsert(rows("a", 2)))
    assert set(block.headers) == PLAIN | POSITIONS


def test_over_a_planned_compaction_they_name_the_base_file_that_was_looked_up(make: Make) -> None:
    """Its successor has other rows: readers compare the instant, and merge by key then."""
    table = make()
    first = writer(table).upsert(rows("abc"))
    writer(table).delete(rows("a").select(["id", "part"]))
    assert schedule_compaction(options(table, compact__inline__max__delta__commits="1")) is not None
    (block,) = blocks(table, writer(table).upsert(rows("c", 2)))
    named = block.headers[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS]
    assert named == first.instant.requested_time
    assert found(table) == {"b": 1, "c": 2}


# -- reading by position -----------------------------------------------------------------------------------------------

BY_POSITION = {"hoodie.merge.use.record.positions": "true"}


def by_position(table: HudiTable, **how: Any) -> dict[str, int]:
    rows_found = read(table.reload(), ReadRequest(options=BY_POSITION, **how)).to_arrow().to_pylist()
    return {row.get("id", str(at)): row["v"] for at, row in enumerate(rows_found)}


@every_version
def test_a_read_by_position_is_the_read_by_key(make: Make, version: int) -> None:
    table = make(version)
    writer(table).upsert(rows("hgfedcba"))
    writer(table).upsert(rows("bgd", 2))
    writer(table).upsert(rows("gh", 0))  # late
    writer(table).upsert(rows("dc", 3).drop_columns("part").append_column("part", pa.array(["p"] * 2)), partial=True)
    writer(table).delete(rows("ae").select(["id", "part"]))
    assert by_position(table) == found(table) == {"b": 2, "c": 3, "d": 3, "f": 1, "g": 2, "h": 1}
    assert sorted(by_position(table, columns=("v",)).values()) == [1, 1, 2, 2, 3, 3]


def test_rows_are_found_without_reading_keys(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep_table.slices import read as module

    table = make()
    writer(table).upsert(rows("abc"))
    writer(table).upsert(rows("b", 2))
    asked: list[tuple[str, ...]] = []

    def seen(*given: Any, schema: Any, **how: Any) -> Any:
        asked.append(schema.names())
        return read_base(*given, schema=schema, **how)

    read_base = module.read_base
    monkeypatch.setattr(module, "read_base", seen)
    assert sorted(by_position(table, columns=("v",)).values()) == [1, 1, 2]
    assert [RECORD_KEY in names for names in asked] == [False]


def test_a_block_without_positions_or_of_another_base_file_is_merged_by_key(make: Make) -> None:
    table = make()
    writer(table).upsert(rows("abc"))
    writer(table).upsert(rows("b", 2))
    writer(table, write__record__positions="false").upsert(rows("c", 2))
    assert by_position(table) == {"a": 1, "b": 2, "c": 2}
    writer(table).delete(rows("a").select(["id", "part"]))
    assert schedule_compaction(options(table, compact__inline__max__delta__commits="1")) is not None
    writer(table).upsert(rows("c", 3))
    assert by_position(table) == {"b": 2, "c": 3}
    execute_pending_compactions(table.reload())
    assert by_position(table) == {"b": 2, "c": 3}


@pytest.mark.parametrize(("positions", "problem"), [([0, 7], "position 7"), ([0], "1 positions")])
def test_positions_that_do_not_fit_are_an_error(make: Make, positions: list[int], problem: str) -> None:
    table = make()
    writer(table).upsert(rows("abc"))
    result = writer(table).upsert(rows("ab", 2))
    (stat,), (block,) = logs(result), blocks(table, result)
    headers = {**block.headers, HeaderKey.RECORD_POSITIONS: format_positions(np.array(positions, np.uint64))}
    broken = format_block(block.type, headers, block.content().to_pybytes())
    table.storage.replace_atomic(stat.path, broken)
    with pytest.raises(CorruptFileError, match=f"record positions: found {problem}") as error:
        by_position(table)
    assert error.value.fields["path"] == stat.path
    assert found(table) == {"a": 2, "b": 2, "c": 1}


@pytest.mark.parametrize(("given", "named"), [({}, False), ({"write__record__positions": "true"}, True)])
def test_a_bucket_index_looks_up_no_positions_unless_it_is_asked_for(
    make: Make, given: dict[str, str], named: bool
) -> None:
    table, bucket = make(), {"index__type": "BUCKET", "bucket__index__num__buckets": "1"}
    writer(table, **bucket).insert(rows("ab"))
    (block,) = blocks(table, writer(table, **bucket, **given).upsert(rows("a", 2)))
    assert (HeaderKey.RECORD_POSITIONS in block.headers) is named
