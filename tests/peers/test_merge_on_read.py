"""Merge-on-read tables of skep beside JVM Hudi: each reads the other's logs, goes on with them and compacts them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer_cases import BEGIN, as_counted, completed
from peer_rows import FEW, Always, Row
from peer_shared import EVERY_COMMIT, MERGE_ON_READ, META, PEERS, WITH_9, Shape, Shared, agree, for_hudi_rs, peer_marks

import skep
from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_format.options import Options
from skep_format.timeline.instant import Action, State
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

TYPE = "hoodie.datasource.query.type"
READ_OPTIMIZED = {TYPE: "read_optimized"}
Start = Callable[[str], Jvm]


def cases(
    shapes: tuple[Shape, ...], sampled: Iterable[tuple[str, int]] = EVERY_COMMIT, *, more: bool = False
) -> Iterator[Any]:
    """The first shape with each release, with `more` the others with the first release; the rest with `--all`."""
    for number, shape in enumerate(shapes):
        for release, version in PEERS:
            chosen = number == 0 or (more and release == PEERS[0][0])
            marks = peer_marks(release, sampled=chosen and (release, version) in sampled)
            yield pytest.param(release, version, shape, marks=marks, id=f"{release}-{version}-{shape}")


def of(found: Iterator[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("release", "table_version", "shape"), list(found), indirect=["table_version"])


every_shape = of(cases(MERGE_ON_READ, WITH_9))
more_shapes = of(cases(MERGE_ON_READ, more=True))
one_shape = of(cases(MERGE_ON_READ[:1]))


def base_files_agree(shared: Shared, hudi: Jvm) -> None:
    theirs, ours = hudi.read(shared.path, READ_OPTIMIZED).rows, shared.read(READ_OPTIMIZED)
    assert not (found := difference(ours, theirs)), f"skep's base files hold other rows than Hudi's: {found}"


def nothing_in_logs(shared: Shared) -> None:
    view = shared.open().view()
    assert not [log for path in view.partitions() for slice_ in view.slices(path) for log in slice_.log_files]


def written_in_logs(shared: Shared) -> int:
    table = shared.open()
    instants = table.timeline.completed().of(Action.DELTA_COMMIT)
    return sum(stat.is_log for instant in instants for stat in table.commit_metadata(instant).stats)


@more_shapes
def test_hudi_reads_our_logs(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    assert written_in_logs(shared) > 3
    agree(shared, hudi)
    base_files_agree(shared, hudi)


@one_shape
def test_hudi_reads_our_parquet_blocks(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    options = Options({"hoodie.logfile.data.block.format": "parquet"})
    shared.life(writer=LocalWriter(shared.open().with_context(options=options)))
    assert any(b"PAR1" in log.read_bytes() for log in shared.path.rglob(".*.log.*"))
    agree(shared, hudi)


@one_shape
def test_hudi_answers_other_queries_of_our_logs(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    instants = sorted(completed(shared.path))
    for options in (
        {TYPE: "incremental", BEGIN: "000"},
        {TYPE: "incremental", BEGIN: instants[2].since},
        {"as.of.instant": instants[1].requested},
        {"as.of.instant": instants[-2].requested},
    ):
        found = difference(shared.read(options), hudi.read(shared.path, as_counted(release, options)).rows)
        assert not found, f"{options}: {found}"


@one_shape
def test_the_same_input_makes_the_same_table(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    """Two tables, one written by skep and one by Hudi: Hudi reads the same rows from both, after each write."""
    hudi = jvm(release)
    ours, theirs = (Shared.make(tmp_path / name / shape.name, shape) for name in ("ours", "theirs"))
    source = ours.source
    steps: list[tuple[str, list[Row]]] = [("insert", source.new(20)), ("upsert", source.mixed(12, 5))]
    steps.append(("upsert", source.again(6, late=True)))
    removed, back = ours.to_delete(5)
    steps += [("delete", removed), ("upsert", [*back, *source.mixed(6, 3)])]
    for operation, rows in steps:
        ours.ours(operation, rows)
        theirs.theirs(hudi, operation, rows)
        found = difference(hudi.read(ours.path).rows, hudi.read(theirs.path).rows, without=META)
        assert not found, f"after {operation}: {found}"


@one_shape
def test_late_rows_flagged_as_deleted(
    release: str, table_version: int, shape: Shape, jvm: Start, tmp_path: Path
) -> None:
    """Here a late delete deletes nothing; in Hudi's own table 0.15 differs (docs/defaults.md)."""
    flagged = replace(shape, columns=FEW.with_(_hoodie_is_deleted=("boolean", Always(lambda r: False))))
    hudi = jvm(release)
    ours, theirs = (Shared.make(tmp_path / name / shape.name, flagged) for name in ("ours", "theirs"))
    rows = ours.source.new(9)
    late = [{**row, "ts": row["ts"] - 10_000_000, "_hoodie_is_deleted": True} for row in rows[:3]]
    after = [{**row, "ts": row["ts"] + 10_000_000, "_hoodie_is_deleted": True} for row in rows[3:6]]
    for batch in (rows, [*late, *after]):
        ours.ours("upsert", batch)
        theirs.theirs(hudi, "upsert", batch)
    ours.rows = {row["id"]: row for row in (*rows[:3], *rows[6:])}
    agree(ours, hudi)
    theirs.rows = {row["id"]: row for row in rows[6:]} if release == "0.15.0" else dict(ours.rows)
    assert not (found := difference(hudi.read(theirs.path).rows, theirs.expected(), without=META)), found
    # a table of version 6 is read as 0.15.0 reads it, for every writer
    kept = rows[6:] if table_version == 6 else theirs.expected()
    assert sorted(row["id"] for row in theirs.read()) == sorted(row["id"] for row in kept)


@every_shape
def test_hudi_and_we_write_in_turn(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    """Either appends to the logs of the other, and the deltas and rows of both count."""
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
    base_files_agree(shared, hudi)


@every_shape
def test_hudi_compacts_our_logs_and_we_its(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    inline = {"compact__inline": "true", "compact__inline__max__delta__commits": "1"}
    shared.theirs(hudi, "upsert", shared.source.mixed(4, 1), **inline)
    assert shared.open().timeline.completed().of(Action.COMMIT).instants
    nothing_in_logs(shared)
    agree(shared, hudi)
    shared.theirs(hudi, "upsert", shared.source.mixed(12, 3))
    shared.ours("upsert", shared.source.mixed(12, 3))
    shared.theirs(hudi, "delete", shared.source.forget(shared.source.again(5)))
    assert len(compact(shared.open())) == 1
    nothing_in_logs(shared)
    agree(shared, hudi)
    base_files_agree(shared, hudi)
    shared.theirs(hudi, "upsert", shared.source.mixed(6, 2))
    agree(shared, hudi)


@one_shape
def test_we_carry_out_what_hudi_planned_while_both_write_on(
    release: str, shape: Shape, jvm: Start, tmp_path: Path
) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    planned = {"compact__inline": "false", "compact__schedule__inline": "true"}
    shared.theirs(hudi, "upsert", shared.source.mixed(4, 1), **planned, compact__inline__max__delta__commits="1")
    pending = shared.open().timeline.pending().of(Action.COMPACTION)
    assert [instant.state for instant in pending] == [State.REQUESTED]
    shared.ours("upsert", shared.source.mixed(8, 3))
    agree(shared, hudi)
    shared.theirs(hudi, "upsert", shared.source.mixed(8, 3))
    shared.ours("delete", shared.source.forget(shared.source.again(4)))
    agree(shared, hudi)
    (done,) = execute_pending_compactions(shared.open())
    assert done.instant.requested_time == pending.instants[0].requested_time
    agree(shared, hudi)
    base_files_agree(shared, hudi)


@one_shape
def test_hudi_carries_out_what_we_planned_while_both_write_on(
    release: str, shape: Shape, jvm: Start, tmp_path: Path
) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    # keys deleted in what is planned must not come back meanwhile: docs/merge-on-read.md
    compact(shared.open())
    shared.ours("upsert", shared.source.mixed(8, 0))
    planned = schedule_compaction(shared.open())
    assert planned is not None
    shared.theirs(hudi, "upsert", shared.source.mixed(8, 3))
    shared.ours("upsert", shared.source.mixed(8, 3))
    agree(shared, hudi)
    # before anything else of its own, Hudi's inline compaction carries out what is pending
    shared.theirs(hudi, "upsert", shared.source.mixed(3, 1), compact__inline="true")
    done = shared.open().timeline.completed().of(Action.COMMIT)
    assert done.contains(planned.requested_time)
    agree(shared, hudi)
    base_files_agree(shared, hudi)


@one_shape
def test_hudi_rolls_back_our_crashed_write(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    born = dict(shared.source.born)
    shared.crash(shared.source.mixed(12, 6))
    shared.source.born = born
    agree(shared, hudi)
    shared.theirs(hudi, "upsert", shared.source.mixed(8, 3))
    # 0.15.0 takes its instant before it rolls back, and stops reading at its own rollback block until the next commit
    shared.ours("upsert", shared.source.mixed(2, 1))
    agree(shared, hudi)
    assert shared.open().timeline.completed().of(Action.ROLLBACK).instants


APPENDS = {"skep.write.log.append": "true", "hoodie.compact.inline": "false"}


def append(shared: Shared, rows: list[Row]) -> None:
    """An upsert into logs that may grow."""
    shared.ours("upsert", rows, writer=LocalWriter(HudiTable.open(str(shared.path), Options(APPENDS))))


def grown(shared: Shared) -> dict[str, int]:
    """The logs of a table, with their sizes: each has blocks of several commits."""
    shared.ours("bulk_insert", shared.source.new(30))
    for _ in range(4):
        append(shared, shared.source.mixed(20, 0))
    table = shared.open()
    stats = table.commit_metadata(table.timeline.data().completed().instants[-1]).stats
    assert all(stat.log_offset > 0 for stat in stats)
    return {stat.path: stat.file_size_in_bytes for stat in stats}


def cut_short(shared: Shared, logs: dict[str, int]) -> None:
    """A write dies in the middle of the blocks that it adds to logs."""
    born = dict(shared.source.born)
    shared.crash(shared.source.mixed(12, 0), *(f"{key}={value}" for key, value in APPENDS.items()))
    shared.source.born = born
    sizes = {path: (shared.path / path).stat().st_size for path in logs}
    assert sizes != logs
    for path, size in logs.items():
        os.truncate(shared.path / path, max(sizes[path] - 5, size))


@of(iter([pytest.param("0.15.0", 6, MERGE_ON_READ[0], marks=peer_marks("0.15.0", sampled=False))]))
def test_hudi_reads_logs_that_grew_and_goes_on_with_them(
    release: str, shape: Shape, jvm: Start, tmp_path: Path
) -> None:
    """Those that we append to, whole and with what a write left that died in the middle of a block."""
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    logs = grown(shared)
    agree(shared, hudi)
    cut_short(shared, logs)
    agree(shared, hudi)
    shared.theirs(hudi, "upsert", shared.source.mixed(8, 3))
    append(shared, shared.source.mixed(10, 1))
    agree(shared, hudi)
    append(shared, shared.source.mixed(10, 1))
    assert len(compact(shared.open())) == 1
    agree(shared, hudi)


@one_shape
def test_we_roll_back_hudis_crashed_write(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    shared.life()
    before, born = dict(shared.rows), dict(shared.source.born)
    shared.theirs(hudi, "upsert", shared.source.mixed(12, 6))
    crashed = max(completed(shared.path))
    crashed.file.unlink()
    crashed.file.with_name(f".{crashed.file.name}.crc").unlink(missing_ok=True)
    shared.rows, shared.source.born = before, born
    shared.ours("upsert", shared.source.mixed(8, 3))
    agree(shared, hudi)


@pytest.mark.peer("rs")
@for_hudi_rs(shape for shape in MERGE_ON_READ if shape.columns is FEW)
def test_hudi_rs_reads_our_logs(shape: Shape, tmp_path: Path) -> None:
    """It does not merge log records with nested structs, of any writer."""
    hudi = pytest.importorskip("hudi")
    shared = Shared.make(tmp_path / shape.name, shape)
    shared.life()
    assert not (found := difference(shared.read(), shared.expected(), without=META)), found
    ours = json_text(list(read(shared.open(), ReadRequest()).to_batches()), shared)
    theirs = json_text([pa.record_batch(batch) for batch in hudi.HudiTable(str(shared.path)).read()], shared)
    assert theirs == ours


@pytest.mark.peer("rs")
@pytest.mark.parametrize("table_version", [6], indirect=True)
def test_hudi_rs_reads_logs_that_grew(tmp_path: Path) -> None:
    hudi = pytest.importorskip("hudi")
    shared = Shared.make(tmp_path / "t", MERGE_ON_READ[0])
    logs = grown(shared)
    for cut in (True, False):
        assert not (found := difference(shared.read(), shared.expected(), without=META)), found
        ours = json_text(list(read(shared.open(), ReadRequest()).to_batches()), shared)
        theirs = json_text([pa.record_batch(batch) for batch in hudi.HudiTable(str(shared.path)).read()], shared)
        assert theirs == ours
        if cut:
            cut_short(shared, logs)
            append(shared, shared.source.mixed(10, 2))


def json_text(batches: list[pa.RecordBatch], shared: Shared) -> list[bytes]:
    names = [*META, *dict.fromkeys(shared.expected()[0])]
    return sorted(line for batch in batches for line in bytes(json_lines(batch.select(names))).splitlines())


INLINE, BESIDE = "hoodie.compact.inline", "hoodie.datasource.compaction.async.enable"


def batches() -> Iterator[Any]:
    """By default and without any compaction, beside 0.15; the others, and 1.1.1, with `--all`."""
    for release in ("0.15.0", "1.1.1"):
        for at, chosen in enumerate(({}, {INLINE: "false", BESIDE: "false"}, {BESIDE: "false"}, {INLINE: "false"})):
            marks = peer_marks(release, sampled=release == "0.15.0" and at < 2)
            yield pytest.param(release, chosen, INLINE not in chosen, marks=marks, id=f"{release}-{chosen}")


@pytest.mark.parametrize(("release", "chosen", "compacts"), list(batches()))
def test_batches_are_compacted_when_hudi_compacts_them(
    release: str, chosen: dict[str, str], compacts: bool, jvm: Start, tmp_path: Path
) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.compact.inline.max.delta.commits": "3",
        **chosen,
    }
    hudi = jvm(release)
    for at in range(3):
        hudi.write(tmp_path / "theirs", [{"id": "a", "ts": at}], "id string, ts bigint", options)
        skep.write(pa.table({"id": ["a"], "ts": [at]})).options(**options).mode("append").save(tmp_path / "ours")
        for table in (HudiTable.open(str(tmp_path / name)) for name in ("theirs", "ours")):
            assert len(table.timeline.completed().of(Action.COMMIT)) == int(compacts and at == 2)
