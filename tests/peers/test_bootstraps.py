"""Tables that skep bootstraps: JVM Hudi reads them, writes on into them, and skep after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from peer_arrow import arrow_table
from peer_rows import FEW, Row, Source, struct, timestamp
from peer_shared import Shape, Shared, agree, peer_marks, peers

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_format.names import BaseFormat
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.bootstrap.options import BootstrapSettings
from skep_table.write.bootstrap.source import open_source, read_source
from skep_table.write.local import LocalWriter

MIXED = {
    "hoodie.bootstrap.mode.selector": "BootstrapRegexModeSelector",
    "hoodie.bootstrap.mode.selector.regex": ".*(north|south)",
}


def second(r: Any) -> str:
    """Hudi loses parts of a second in ORC files."""
    return timestamp(r)[:-8] + ".000000Z"


COLUMNS = FEW.with_(moment=("timestamp", timestamp), place=("struct<at:timestamp>", struct(at=timestamp)))
Start = Callable[[str], Jvm]


def bootstrapped(path: Path, shape: Shape, spark: Jvm | None = None, **settings: str) -> Shared:
    """A table of a folder of Parquet files, or of ORC files by Spark; most partitions keep their rows there."""
    source = Source(shape.name, shape.columns, shape.partitions, shape.part_type)
    rows, folder = source.new(40), source_of(path)
    table = arrow_table(rows, source.ddl())
    if spark is None:
        ds.write_dataset(table, folder, format="parquet", partitioning=["part"], partitioning_flavor="hive")
    else:
        pq.write_table(table, path.with_name("rows.parquet"))
        given = {"source": str(path.with_name("rows.parquet")), "options": {}}
        spark.request("write_files", path=str(folder), format="orc", by=["part"], **given)
    options = Options({"hoodie.bootstrap.base.path": str(folder), **MIXED, **settings})
    found = read_source(open_source(options), ("id",), BootstrapSettings.of(options), ThreadRunner(1))
    spec = TableSpec(
        name=shape.name,
        schema=to_arrow(found.columns),
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        hive_style=True,
        type=shape.type,
        base_format=BaseFormat.PARQUET if spark is None else BaseFormat.ORC,
    )
    results = LocalWriter(create_table(LocalStorage(str(path)), spec, options)).bootstrap(found)
    assert [result.instant.requested_time[-1] for result in results] == ["1", "2"]
    shared = Shared(path, shape, source)
    shared._note("insert", rows)
    return shared


@peers(sampled=(("0.15.0", 6), ("1.2.0", 9)))
@pytest.mark.parametrize(
    "kind",
    [pytest.param(TableType.COPY_ON_WRITE, marks=pytest.mark.slow), TableType.MERGE_ON_READ],
    ids=["cow", "mor"],
)
def test_hudi_and_we_write_in_turn_on_what_we_bootstrapped(
    release: str, kind: TableType, jvm: Start, tmp_path: Path
) -> None:
    hudi, shape = jvm(release), Shape("bootstrapped", COLUMNS, hive_style=True, type=kind)
    shared = bootstrapped(tmp_path / "bootstrapped", shape, **{"hoodie.metadata.enable": "true"})
    agree(shared, hudi)
    shared.theirs(hudi, "upsert", shared.source.mixed(12, 4), metadata__enable="true")
    agree(shared, hudi)
    shared.ours("upsert", shared.source.mixed(8, 3))
    shared.theirs(hudi, "delete", shared.source.forget(shared.source.again(4)), metadata__enable="true")
    assert shared.open().config.metadata_partitions
    if kind is TableType.MERGE_ON_READ:
        before = by_key(shared)
        assert compact(shared.open())
        assert by_key(shared) == before
    agree(shared, hudi)


IN_ORC = {
    "hoodie.index.type": "SIMPLE",
    "hoodie.base.file.format": "ORC",
    "hoodie.datasource.write.row.writer.enable": "false",
}


@pytest.mark.parametrize(
    ("release", "table_version"),
    [
        pytest.param("1.2.0", 9, marks=peer_marks("1.2.0", sampled=True)),
        pytest.param("1.1.1", 9, marks=peer_marks("1.1.1", sampled=False)),
    ],
    indirect=["table_version"],
)
def test_hudi_and_we_bootstrap_orc_files_and_write_in_turn(release: str, by_rows: Start, tmp_path: Path) -> None:
    """0.15.0 makes such skeletons, and does not read them; 1.1.1 does not rewrite them. Hudi's tables lack the
    partition column, and have times in milliseconds."""
    # Hudi takes all members of structs for required where it makes a table of ORC files
    columns = FEW.with_(moment=("timestamp", second), place=("struct<at:timestamp>", lambda r: {"at": second(r)}))
    hudi, shape = by_rows(release), Shape("bootstrapped", columns, hive_style=True)
    shared = bootstrapped(tmp_path / "ours", shape, hudi)
    agree(shared, hudi)
    if release == "1.2.0":
        more = {key.removeprefix("hoodie.").replace(".", "__"): value for key, value in IN_ORC.items()}
        shared.theirs(hudi, "upsert", shared.source.mixed(8, 3), **more)
        agree(shared, hudi)
    shared.ours("upsert", shared.source.mixed(8, 3))
    shared.ours("delete", shared.source.forget(shared.source.again(4)))
    agree(shared, hudi)
    theirs = tmp_path / "theirs"
    options = "hoodie.datasource.write.hive_style_partitioning=true,hoodie.datasource.write.precombine.field=ts"
    hudi.sql(
        f"CALL run_bootstrap(table => 'theirs', table_type => 'COPY_ON_WRITE', base_path => '{theirs}',"
        f" bootstrap_path => '{source_of(shared.path)}', rowKey_field => 'id', partition_path_field => 'part',"
        f" base_file_format => 'ORC', options => '{options},hoodie.metadata.enable=false')"
    )
    row = shared.source.again(1)
    LocalWriter(HudiTable.open(str(theirs))).upsert(arrow_table(row, shared.source.ddl()))
    after = {each["id"]: each for each in agreed(theirs, hudi)}
    assert len(after) >= 40  # most of them in skeletons
    assert after[row[0]["id"]]["note"] == row[0]["note"]


def agreed(path: Path, hudi: Jvm) -> list[Row]:
    """The rows of a table, which skep reads as Hudi does."""
    rows = hudi.read(path).rows
    batches = read(HudiTable.open(str(path)), ReadRequest()).to_batches()
    ours = [json.loads(line) for batch in batches for line in bytes(json_lines(batch)).splitlines()]
    assert not (found := difference(ours, rows)), f"skep reads other rows than Hudi: {found}"
    return rows


def source_of(path: Path) -> Path:
    """The folder of which the table at a path was made."""
    return path.with_name(f"{path.name}_source")


def by_key(shared: Shared) -> dict[Any, Any]:
    rows = read(shared.open(), ReadRequest()).to_arrow().drop_columns(["_hoodie_file_name"])
    return {row["id"]: row for row in rows.to_pylist()}
