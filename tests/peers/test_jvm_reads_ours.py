"""Tables that skep writes: JVM Hudi reads them, writes on into them, and skep after it; hudi-rs reads them too."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from peer_cases import BEGIN, as_counted, completed
from peer_shared import META, SHAPES, WITH_9, Shape, Shared, agree, for_hudi_rs, peers

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

INCREMENTAL = {"hoodie.datasource.query.type": "incremental"}

hudi_releases = peers()
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
one_shape = pytest.mark.parametrize("shape", SHAPES[:1], ids=str)
Start = Callable[[str], Jvm]


@hudi_releases
@shapes
def test_hudi_reads_what_we_wrote(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    agree(shared, hudi)


@hudi_releases
@one_shape
def test_hudi_answers_other_queries_of_our_timeline(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    instants = sorted(completed(shared.path))
    for options in (
        {**INCREMENTAL, BEGIN: "000"},
        {**INCREMENTAL, BEGIN: instants[2].since},
        {"as.of.instant": instants[1].requested},
        {"as.of.instant": instants[-2].requested},
    ):
        found = difference(shared.read(options), hudi.read(shared.path, as_counted(release, options)).rows)
        assert not found, f"{options}: {found}"


@hudi_releases
@shapes
def test_hudi_and_we_write_in_turn(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    """Hudi's Bloom index finds our keys in our footers, and ours finds those that Hudi wrote."""
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    shared.theirs(hudi, "upsert", shared.source.mixed(15, 6))
    agree(shared, hudi)
    shared.ours("upsert", shared.source.mixed(15, 6))
    shared.ours("delete", shared.source.forget(shared.source.again(5)))
    agree(shared, hudi)
    shared.theirs(hudi, "delete", shared.source.forget(shared.source.again(5)))
    shared.ours("upsert", shared.source.mixed(8, 2))
    agree(shared, hudi)


@peers(sampled=(("0.15.0", 6),))
@pytest.mark.parametrize("statistics", ["false", "true"])
def test_hudi_finds_our_rows_with_nan(release: str, statistics: str, jvm: Start, tmp_path: Path) -> None:
    """For Spark, NaN is the greatest number: bounds of a row group without it would hide the row."""
    schema = pa.schema([("id", pa.string()), ("d", pa.float64()), ("s", pa.struct([("f", pa.float32())]))])
    indexes = {"hoodie.metadata.enable": statistics, "hoodie.metadata.index.column.stats.enable": statistics}
    storage = LocalStorage(str(tmp_path))
    create_table(storage, TableSpec(name="t", schema=schema, record_key=("id",)), indexes)
    rows = [{"id": "1", "d": math.nan, "s": {"f": math.nan}}, {"id": "2", "d": -1.0, "s": {"f": -1.0}}]
    LocalWriter(HudiTable.open(storage).with_options(indexes)).insert(pa.Table.from_pylist(rows, schema))
    skipping = {**indexes, "hoodie.enable.data.skipping": statistics}
    for column in ("d", "s.f"):
        for where in ("> 1", ">= 0", "<> -1", "= double('NaN')"):
            found = jvm(release).read(tmp_path, skipping, columns=["id"], where=f"{column} {where}").rows
            assert found == [{"id": "1"}], f"{column} {where}"


@peers(sampled=WITH_9)
@one_shape
def test_hudi_rolls_back_our_crashed_write(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    files = data_files(shared.path)
    born = dict(shared.source.born)
    shared.crash(shared.source.mixed(12, 6))
    shared.source.born = born
    left = data_files(shared.path) - files
    assert left, "the crashed write left no file to roll back"
    agree(shared, hudi)
    shared.theirs(hudi, "upsert", shared.source.mixed(8, 3))
    agree(shared, hudi)
    assert not left & data_files(shared.path), "Hudi's rollback left files of our crashed write"


@hudi_releases
@one_shape
def test_we_roll_back_hudis_crashed_write(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    before, files = dict(shared.rows), data_files(shared.path)
    born = dict(shared.source.born)
    shared.theirs(hudi, "upsert", shared.source.mixed(12, 6))
    crashed = max(completed(shared.path))
    crashed.file.unlink()
    crashed.file.with_name(f".{crashed.file.name}.crc").unlink(missing_ok=True)
    shared.rows, shared.source.born = before, born
    left = data_files(shared.path) - files
    assert left
    shared.ours("upsert", shared.source.mixed(8, 3))
    assert not left & data_files(shared.path), "our rollback left files of Hudi's crashed write"
    agree(shared, hudi)


@hudi_releases
@one_shape
def test_hudi_rewrites_arrays_with_nulls_on_request(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    """Its Avro writer refuses null elements unless parquet.avro.write-old-list-structure is false."""
    hudi = jvm(release)
    tags = ("array<string>", lambda r: [None, "x"])
    shared = Shared.make(tmp_path / "nulls", Shape("nulls", columns=shape.columns.with_(tags=tags)))
    with pytest.warns(UserWarning, match="write-old-list-structure"):
        shared.ours("bulk_insert", shared.source.new(10))
    agree(shared, hudi)
    old = hudi.request("hadoop", key="parquet.avro.write-old-list-structure", value="false")["before"]
    try:
        shared.theirs(hudi, "upsert", shared.source.mixed(4, 2))
    finally:
        hudi.request("hadoop", key="parquet.avro.write-old-list-structure", value=old)
    agree(shared, hudi)


@pytest.mark.peer("rs")
@for_hudi_rs(SHAPES)
def test_hudi_rs_reads_what_we_wrote(shape: Shape, tmp_path: Path) -> None:
    hudi = pytest.importorskip("hudi")
    shared = Shared.make(tmp_path / shape.name, shape)
    shared.life()
    assert not (found := difference(shared.read(), shared.expected(), without=META)), found
    ours = json_text(list(read(shared.open(), ReadRequest()).to_batches()), shared)
    theirs = json_text([pa.record_batch(batch) for batch in hudi.HudiTable(str(shared.path)).read()], shared)
    assert theirs == ours


def json_text(batches: list[pa.RecordBatch], shared: Shared) -> list[bytes]:
    names = [*META, *dict.fromkeys(shared.expected()[0])]
    return sorted(line for batch in batches for line in bytes(json_lines(batch.select(names))).splitlines())


def data_files(table: Path) -> set[str]:
    return {str(file.relative_to(table)) for file in table.rglob("*.parquet") if ".hoodie" not in file.parts}
