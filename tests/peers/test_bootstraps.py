"""Tables that skep bootstraps: JVM Hudi reads them, writes on into them, and skep after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from peer_arrow import arrow_table
from peer_rows import FEW, Source, struct, timestamp
from peer_shared import Shape, Shared, agree, peers

from benchmarks.peers.jvm import Jvm
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.write.bootstrap.options import BootstrapSettings
from skep_table.write.bootstrap.source import open_source, read_source
from skep_table.write.local import LocalWriter

MIXED = {
    "hoodie.bootstrap.mode.selector": "BootstrapRegexModeSelector",
    "hoodie.bootstrap.mode.selector.regex": ".*(north|south)",
}
COLUMNS = FEW.with_(moment=("timestamp", timestamp), place=("struct<at:timestamp>", struct(at=timestamp)))
Start = Callable[[str], Jvm]


def bootstrapped(path: Path, shape: Shape, **settings: str) -> Shared:
    """A table of a folder of Parquet files, most of whose partitions keep their rows there."""
    source = Source(shape.name, shape.columns, shape.partitions, shape.part_type)
    rows, folder = source.new(40), path.with_name(f"{path.name}_source")
    table = arrow_table(rows, source.ddl())
    ds.write_dataset(table, folder, format="parquet", partitioning=["part"], partitioning_flavor="hive")
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


def by_key(shared: Shared) -> dict[Any, Any]:
    rows = read(shared.open(), ReadRequest()).to_arrow().drop_columns(["_hoodie_file_name"])
    return {row["id"]: row for row in rows.to_pylist()}
