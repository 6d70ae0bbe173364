"""Tables whose base files are ORC: every write and service as on those of Parquet, and what is particular to them."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from skep.query.over_rows import Queries
from skep.query.spark import SparkHolder
from skep_format.basefile import read_footer
from skep_format.errors import CorruptFileError, OptionError, TableMismatchError, UnsupportedError
from skep_format.logfile import BlockType, read_blocks
from skep_format.metafile import read_metafile
from skep_format.names import BaseFormat
from skep_format.options import IneffectiveOptionWarning, Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.versions import known_versions
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.read import explain, read
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.services.fsck import Problem, fsck
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.repairs.metafiles import migrate_metafiles
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.input.source import matching
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("place", pa.struct([("city", pa.string()), ("tags", pa.list_(pa.string()))])),
    ]
)
INDEXED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
}


def make(folder: Path, **spec: Any) -> HudiTable:
    usual = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", "base_format": BaseFormat.ORC}
    return create_table(LocalStorage(str(folder / "t")), TableSpec(name="t", schema=SCHEMA, **{**usual, **spec}))


def rows(ids: range | list[int], ts: int = 1) -> pa.Table:
    made = [
        {
            "id": f"k{at:04}",
            "part": f"p{at % 2}",
            "ts": ts,
            "at": dt.datetime(2024, 1, 1, 1, 2, 3, at, dt.timezone.utc),
            "place": None if at % 3 == 0 else {"city": f"c{ts}", "tags": None if at % 3 == 1 else [f"t{at}", None]},
        }
        for at in ids
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def writer(table: HudiTable, options: dict[str, Any] | None = None) -> LocalWriter:
    queries = Queries(SparkHolder()).query
    return LocalWriter(table.reload().with_context(options=Options(options or {}), queries=queries))


def content(table: HudiTable) -> list[dict[str, Any]]:
    found = read(table.reload(), ReadRequest(columns=tuple(SCHEMA.names))).to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


def base_files(table: HudiTable) -> list[Path]:
    root = Path(table.storage.root)
    assert not [file for file in root.rglob("*.parquet") if ".hoodie" not in file.parts]
    return sorted(file for file in root.rglob("*.orc") if file.name.endswith("_" + file.name.rpartition("_")[2]))


def kinds() -> list[Any]:
    """All types and versions; a sample is not slow."""
    sampled = ((6, TableType.COPY_ON_WRITE), (9, TableType.MERGE_ON_READ))
    pairs = itertools.product(known_versions(), TableType)
    return [pytest.param(*pair, marks=[] if pair in sampled else [pytest.mark.slow]) for pair in pairs]


@pytest.mark.parametrize(("version", "kind"), kinds())
def test_the_life_of_a_table(tmp_path: Path, kind: TableType, version: int) -> None:
    table = make(tmp_path, type=kind, version=version)
    writer(table, INDEXED).bulk_insert(rows(range(10)))
    writer(table, INDEXED).insert(rows(range(10, 20)))
    assert writer(table, INDEXED).upsert(rows(range(15, 25), 2)).updated == 5
    writer(table, INDEXED).upsert(rows([2], 0))  # late: it changes nothing
    assert writer(table, INDEXED).delete(rows([3, 4], 9).select(["id", "part", "ts"])).deleted == 2
    assert writer(table, INDEXED).delete_computed(matching("id = 'k0000'")).deleted == 1
    writer(table, INDEXED).upsert(rows([24, 26], 3))
    every = dict.fromkeys(range(15), 1) | dict.fromkeys(range(15, 25), 2) | {24: 3, 26: 3}
    for deleted in (0, 3, 4):
        del every[deleted]
    expected = [row for at, ts in sorted(every.items()) for row in rows([at], ts).to_pylist()]
    assert content(table) == expected
    if kind is TableType.MERGE_ON_READ:
        logs = list(Path(table.storage.root).rglob(".*.log.*"))
        blocks = [block for file in logs for block in read_blocks(pa.OSFile(str(file)), file.name)]
        assert {block.type for block in blocks if ".hoodie" not in str(block)} >= {BlockType.AVRO_DATA}
        small = {"hoodie.compact.inline.max.delta.commits": "1", **INDEXED}
        assert compact(table.reload().with_context(options=Options(small)))
        assert content(table) == expected
    single = {"hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true", **INDEXED}
    assert cluster(table.reload().with_context(options=Options(single)))
    assert content(table) == expected
    newest = {
        "hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.cleaner.fileversions.retained": "1",
        **INDEXED,
    }
    assert clean(table.reload().with_context(options=Options(newest)))
    assert content(table) == expected
    writer(table, INDEXED).insert_overwrite(rows([1, 5], 7))
    writer(table, INDEXED).upsert(rows([5], 8))
    last = table.reload().timeline.data().completed().last()
    assert last is not None
    roll_back_instant(table.reload().with_context(options=Options(INDEXED)), last.requested_time)
    kept = [row for row in expected if row["part"] == "p0"]
    assert content(table) == sorted([*kept, *rows([1, 5], 7).to_pylist()], key=lambda row: str(row["id"]))
    checked = check_metadata_table(table.reload())
    assert not checked.differences
    assert not fsck(table.reload())
    for file in base_files(table):
        footer = read_footer(table.storage, str(file.relative_to(table.storage.root)))
        assert footer.bloom is not None or not footer.num_rows
        assert orc.ORCFile(file).compression == "SNAPPY"


def test_small_files_are_filled_and_full_ones_end(tmp_path: Path) -> None:
    table = make(tmp_path, partition_by=())
    writer(table).insert(rows(range(10)))
    (first,) = base_files(table)
    writer(table).insert(rows(range(10, 20)))
    assert {file.name.partition("_")[0] for file in base_files(table)} == {first.name.partition("_")[0]}
    small = {"hoodie.orc.max.file.size": "20000", "hoodie.parquet.small.file.limit": "0"}
    writer(table, small).bulk_insert(rows(range(20, 5000)))
    sizes = [file.stat().st_size for file in base_files(table)[2:]]
    assert len(sizes) > 2
    assert len(content(table)) == 5000


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_BLOOM", "BUCKET"])
def test_keys_are_found_by_each_index(tmp_path: Path, index: str) -> None:
    options = {"hoodie.index.type": index}
    table = make(tmp_path)
    writer(table, options).upsert(rows(range(100)))
    written = writer(table, options).upsert(rows([7, 8, 300], 2))
    assert (written.updated, written.inserted) == (2, 1)
    assert len(content(table)) == 101


def test_files_are_left_out_by_the_keys_of_their_footers(tmp_path: Path) -> None:
    table = make(tmp_path, partition_by=())
    none_small = {"hoodie.parquet.small.file.limit": "0"}
    writer(table, none_small).insert(rows(range(10)))
    writer(table, none_small).insert(rows(range(10, 20)))
    one = ReadRequest(where="id = 'k0015'")
    assert explain(table.reload(), one).steps[-1].slices == 1
    assert [row["id"] for row in read(table.reload(), one).to_arrow().to_pylist()] == ["k0015"]


def test_the_format_is_that_of_the_table(tmp_path: Path) -> None:
    table = make(tmp_path)
    with pytest.raises(TableMismatchError, match=r"base\.file\.format ORC, not PARQUET"):
        writer(table, {"hoodie.base.file.format": "PARQUET"}).insert(rows([1]))
    with pytest.raises(OptionError, match=r"hoodie\.orc\.compression\.codec"):
        writer(table, {"hoodie.orc.compression.codec": "LZO"}).insert(rows([1]))
    far = rows([1]).set_column(3, SCHEMA.field("at"), pa.array([dt.datetime(9999, 12, 31)], SCHEMA.field("at").type))
    with pytest.raises(UnsupportedError, match="column at: timestamps before 1677"):
        writer(table).insert(far)
    assert not base_files(table)


def test_options_of_the_other_format_are_warned_of(tmp_path: Path) -> None:
    table = make(tmp_path)
    with pytest.warns(IneffectiveOptionWarning, match=r"parquet\.max\.file\.size has no effect: base files are ORC"):
        writer(table, {"hoodie.parquet.max.file.size": "1000"}).insert(rows([1]))
    parquet = make(tmp_path / "other", base_format=BaseFormat.PARQUET)
    with pytest.warns(IneffectiveOptionWarning, match=r"orc\.stripe\.size has no effect: base files are PARQUET"):
        writer(parquet, {"hoodie.orc.stripe.size": "1000"}).insert(rows([1]))


def test_tables_of_hfiles_are_not_written(tmp_path: Path) -> None:
    table = make(tmp_path, base_format=BaseFormat.HFILE)
    with pytest.raises(UnsupportedError, match="base files in HFILE can't be written"):
        writer(table).insert(rows([1]))


def test_metafiles_of_partitions_in_the_format_of_base_files(tmp_path: Path) -> None:
    table = make(tmp_path)
    writer(table).insert(rows(range(4)))
    migrate_metafiles(table)
    writer(table).insert(rows(range(4, 8)))
    assert Path(table.storage.root, "p0", ".hoodie_partition_metadata.orc").exists()
    facts = read_metafile(table.storage, "p0")
    assert facts is not None
    assert facts["partitionDepth"] == "1"
    assert len(content(table)) == 8


@pytest.mark.parametrize("keep", [0, -30])
def test_a_damaged_file_is_named_by_reads_writes_and_fsck(tmp_path: Path, keep: int) -> None:
    table = make(tmp_path, partition_by=())
    writer(table).insert(rows(range(100)))
    (file,) = base_files(table)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CorruptFileError, match=file.name):
        content(table)
    with pytest.raises(CorruptFileError, match=file.name):
        writer(table).upsert(rows([5], 2))
    found = fsck(table.reload(), deep=True)
    assert {Problem.DAMAGED} <= {finding.problem for finding in found}
