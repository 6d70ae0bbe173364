"""Change data that skep writes: a CDC query of JVM Hudi finds in it what skep's own finds, and Hudi writes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peer_arrow import arrow_schema, arrow_table
from peer_cases import BEGIN, as_counted, completed
from peer_rows import Columns, Source, integer, word
from peer_shared import PEERS, Shape, Shared, agree, peer_marks

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.write.local import LocalWriter

Start = Callable[[str], Jvm]
CDC = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.query.incremental.format": "cdc",
}
# No decimals: Hudi prints those that it takes from data files as {"zero":false}.
COLUMNS = Columns(
    {
        "n": ("int", integer(32)),
        "note": ("string", word),
        "big": ("bigint", integer(64)),
        "flag": ("boolean", lambda r: r.random() < 0.5),
    }
)
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
KINDS = {"cow": TableType.COPY_ON_WRITE, "mor": TableType.MERGE_ON_READ}


def asked() -> list[Any]:
    """Each release with each mode and type; those of every commit are a sample."""
    found = []
    for release, version in PEERS:
        for mode in MODES:
            for kind in KINDS:
                if (release, version, kind) == ("1.2.0", 6, "mor"):
                    continue  # it takes the commits of version 6, which are JSON, for Avro files
                sampled = (release, version, mode, kind) in (
                    ("0.15.0", 6, "OP_KEY_ONLY", "cow"),
                    ("1.2.0", 9, "DATA_BEFORE_AFTER", "mor"),
                )
                marks = peer_marks(release, sampled=sampled)
                found.append(
                    pytest.param(release, version, mode, kind, marks=marks, id=f"{release}-{version}-{mode}-{kind}")
                )
    return found


releases = pytest.mark.parametrize(("release", "table_version", "mode", "kind"), asked(), indirect=["table_version"])


def make(folder: Path, kind: str, mode: str) -> Shared:
    shape = Shape("captured", columns=COLUMNS, type=KINDS[kind])
    source = Source(shape.name, shape.columns, shape.partitions, shape.part_type)
    spec = TableSpec(
        name=shape.name,
        schema=arrow_schema(source.ddl()),
        record_key=shape.record_key,
        partition_by=shape.partition_by,
        ordering=shape.ordering,
        type=shape.type,
        properties={
            "hoodie.table.cdc.enabled": "true",
            "hoodie.table.cdc.supplemental.logging.mode": mode,
        },
    )
    create_table(LocalStorage(str(folder)), spec)
    return Shared(folder, shape, source)


REPEATS_REPLACED = ("0.15.0", "1.0.2")
"""Of the rows of replaced groups these releases print the last one again and again."""


def same_changes(shared: Shared, hudi: Jvm, begin: str = "000", replaced: int = 0) -> int:
    options = {**CDC, BEGIN: begin}
    theirs = parsed(hudi.read(shared.path, as_counted(hudi.release, options)).rows)
    ours = parsed(shared.read(options))
    if replaced and hudi.release in REPEATS_REPLACED:
        assert Counter((each["op"], each["ts_ms"]) for each in ours) == Counter(
            (each["op"], each["ts_ms"]) for each in theirs
        )
        ours, theirs = ([each for each in changes if each["op"] != "d"] for changes in (ours, theirs))
    found = difference(ours, theirs)
    assert not found, f"changes since {begin}: {found}"
    return len(ours)


def parsed(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With images as values, without what a release may add to them or leave out: meta columns and nulls."""
    return [{name: image(text) if name in ("before", "after") else text for name, text in c.items()} for c in changes]


def image(text: Any) -> Any:
    row = json.loads(text) if isinstance(text, str) else None
    return row and {name: value for name, value in row.items() if value is not None and not name.startswith("_hoodie")}


@releases
def test_hudi_reads_the_changes_that_we_wrote(release: str, mode: str, kind: str, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), make(tmp_path / "t", kind, mode)
    source = shared.source
    shared.ours("bulk_insert", source.new(20))
    shared.ours("insert", source.new(10))
    shared.ours("upsert", source.mixed(12, 6))
    shared.late()
    removed, back = shared.to_delete(6)
    shared.ours("delete", removed)
    shared.ours("upsert", back or source.again(2))
    if kind == "mor":
        compact(shared.open())
        shared.ours("upsert", source.mixed(6, 3))
    agree(shared, hudi)
    assert same_changes(shared, hudi) > 50
    instants = sorted(completed(shared.path))
    for instant in (instants[0], instants[2], instants[-2]):
        same_changes(shared, hudi, instant.since)


@releases
def test_hudi_and_we_write_changes_in_turn(release: str, mode: str, kind: str, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), make(tmp_path / "t", kind, mode)
    source = shared.source
    shared.ours("upsert", source.new(20))
    shared.theirs(hudi, "upsert", source.mixed(8, 4))
    shared.ours("upsert", source.mixed(8, 4))
    shared.theirs(hudi, "delete", source.forget(source.again(4)))
    shared.ours("delete", source.forget(source.again(4)))
    shared.theirs(hudi, "upsert", source.mixed(4, 2))
    agree(shared, hudi)
    same_changes(shared, hudi)
    same_changes(shared, hudi, sorted(completed(shared.path))[1].since)


one_mode = pytest.mark.parametrize(
    ("release", "table_version"),
    [
        pytest.param(release, version, marks=peer_marks(release, sampled=(release, version) == ("1.2.0", 9)))
        for release, version in PEERS
    ],
    indirect=["table_version"],
)


@one_mode
def test_hudi_reads_the_changes_of_replaced_groups_and_emptied_files(release: str, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), make(tmp_path / "t", "cow", "DATA_BEFORE_AFTER")
    source = shared.source
    shared.ours("upsert", [dict(row, part=part) for part in shared.shape.partitions for row in source.new(4)])
    rows = list(shared.rows.values())
    north, south, east = ([row for row in rows if row["part"] == part] for part in shared.shape.partitions)
    shared.ours("delete", source.forget(north))  # an empty base file is left
    LocalWriter(shared.open()).insert_overwrite(arrow_table([dict(south[0], n=7)], source.ddl()))
    LocalWriter(shared.open()).delete_partitions(["east"])
    cluster(shared.open())
    shared.ours("upsert", [dict(row, part="north") for row in source.new(2)])
    ops = [change["op"] for change in shared.read({**CDC, BEGIN: "000"})]
    assert (ops.count("i"), ops.count("d")) == (15, 12)
    same_changes(shared, hudi, replaced=len(south) + len(east))


@one_mode
def test_hudi_deletes_the_change_logs_of_our_crashed_write(release: str, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), make(tmp_path / "t", "cow", "DATA_BEFORE_AFTER")
    shared.ours("upsert", shared.source.new(20))
    born = dict(shared.source.born)
    shared.crash(shared.source.mixed(12, 6))
    shared.source.born = born
    left = list(shared.path.rglob("*.cdc"))
    assert left, "the crashed write left no log"
    shared.theirs(hudi, "upsert", shared.source.mixed(8, 3))
    agree(shared, hudi)
    # 0.15.0 takes the log of a base file for one that slices share, and leaves it: that of its own writes, too
    assert [file for file in left if file.exists()] == (left if release == "0.15.0" else [])
    same_changes(shared, hudi)
