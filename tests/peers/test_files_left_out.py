"""JVM Hudi leaves out files by each index that skep wrote: it finds what a full scan does, with all others damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer_shared import peer_marks

from benchmarks.peers.jvm import HudiRefused, Jvm
from benchmarks.peers.spelling import difference
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.metadata.indexing import build_index, index_named
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("note", pa.string()),
        ("name", pa.string()),
    ]
)
BATCHES, ROWS = 3, 8
INDEXES = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "3",
}
WRITES = {**INDEXES, "hoodie.parquet.small.file.limit": "0"}
SKIPPING = {**INDEXES, "hoodie.enable.data.skipping": "true"}
NO_STATS = {"hoodie.metadata.index.column.stats.enable": "false"}


@dataclass(frozen=True)
class Asked:
    """A filter that one index serves, and what the reader is given besides."""

    index: str
    where: str
    more: dict[str, str]
    since: int = 6


FILTERS = (
    Asked("column_stats", "n = -1", {}),
    Asked("column_stats", "n >= 200 AND n < 300", {}),
    Asked("record_index", "id = 'k5'", NO_STATS),
    Asked("record_index", "id IN ('k4', 'k7')", NO_STATS),
    Asked("secondary_index_note", "note = 'note 5'", {}, since=8),
    Asked("expr_index_shouted", "upper(name) = 'B7'", {}, since=8),
    Asked("expr_index_lowered", "lower(id) = 'k5'", {}, since=8),
)


def rows(batch: int) -> pa.Table:
    """Numbers and names of a batch are its own; keys and notes of all batches are mixed."""
    return pa.Table.from_pylist(
        [
            {
                "id": f"k{at * BATCHES + batch}",
                "part": ("north", "south")[at % 2],
                "ts": batch,
                "n": 100 * batch + at,
                "note": f"note {at * BATCHES + batch}",
                "name": f"{'abc'[batch]}{at}",
            }
            for at in range(ROWS)
        ],
        SCHEMA,
    )


def indexed(path: Path, kind: TableType, version: int) -> HudiTable:
    """Two files of each batch, one of them with an update behind it, and every index."""
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", version=version, type=kind
    )
    table = create_table(LocalStorage(str(path)), spec)
    for batch in range(BATCHES):
        LocalWriter(HudiTable.open(str(path), WRITES)).bulk_insert(rows(batch))
    changed = rows(1).slice(2, 1).to_pylist()[0] | {"n": -1, "ts": 9}
    LocalWriter(HudiTable.open(str(path), WRITES)).upsert(pa.Table.from_pylist([changed], SCHEMA))
    if version >= 8:
        for definition in (
            index_named("secondary_index", "note", ["note"]),
            index_named("column_stats", "shouted", ["name"], {"expr": "upper"}),
            index_named("bloom_filters", "lowered", ["id"], {"expr": "lower"}),
        ):
            build_index(HudiTable.open(str(path), WRITES), definition)
    table = HudiTable.open(str(path), WRITES)
    assert not check_metadata_table(table).differences
    return table


def damage_others(table: HudiTable, where: str) -> int:
    """Overwrites the base files of file groups without a row of the filter; gives their number."""
    found = read(table, ReadRequest(columns=("_hoodie_file_name",), where=where)).to_arrow()
    kept = {name[:36] for name in found["_hoodie_file_name"].to_pylist()}
    others = [path for path in Path(table.storage.root).glob("*/*.parquet") if path.name[:36] not in kept]
    for path in others:
        path.write_bytes(bytes(path.stat().st_size))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return len(others)


CASES = [
    pytest.param(
        release,
        version,
        kind,
        id=f"{release}-{kind.value}",
        marks=peer_marks(release, sampled=(release, kind) == ("1.2.0", TableType.MERGE_ON_READ)),
    )
    for release, version in (("0.15.0", 6), ("1.0.2", 8), ("1.1.1", 9), ("1.2.0", 9))
    for kind in TableType
]


@pytest.mark.parametrize(("release", "version", "kind"), CASES)
def test_hudi_reads_the_files_that_an_index_names_and_no_others(
    release: str, version: int, kind: TableType, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    hudi, table = jvm(release), indexed(tmp_path / "t", kind, version)
    wrong = []
    for number, asked in enumerate(each for each in FILTERS if each.since <= version):
        assert asked.index in table.config.metadata_partitions
        scanned = hudi.read(table.storage.root, {"hoodie.metadata.enable": "false"}, where=asked.where).rows
        assert ids(scanned) == ids(read(table, ReadRequest(where=asked.where)).to_arrow().to_pylist()) != []
        path = tmp_path / str(number)
        shutil.copytree(table.storage.root, path)
        assert damage_others(HudiTable.open(str(path)), asked.where)
        with pytest.raises(HudiRefused):
            hudi.read(path, {"hoodie.metadata.enable": "false"}, where=asked.where)
        try:
            found = hudi.read(path, {**SKIPPING, **asked.more}, where=asked.where).rows
        except HudiRefused as refused:
            wrong.append(f"{asked.index} of {asked.where}: reads what it need not, {str(refused)[:300]}")
            continue
        if unlike := difference(found, scanned):
            wrong.append(f"{asked.index} of {asked.where}: {unlike}")
    assert not wrong, "\n".join(wrong)


def ids(found: list[dict[str, Any]]) -> list[str]:
    return sorted(str(row["id"]) for row in found)
