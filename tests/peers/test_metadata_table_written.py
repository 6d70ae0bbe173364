"""The metadata table that skep writes: JVM Hudi lists files by it, keeps it, and skep goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from peer_shared import MERGE_ON_READ, META, SHAPES, Shape, Shared, peer_marks

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.names import PARTITION_METAFILE
from skep_format.timeline.instant import Action
from skep_table.metadata_write.own import open_own
from skep_table.services.automatic import maintain
from skep_table.services.cleaning.clean import clean
from skep_table.services.compaction.compact import compact
from skep_table.services.metadata.upkeep import maintain_metadata_table
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

ASKED = (("0.15.0", 6), ("1.2.0", 9), ("1.1.1", 9))
KEPT = {"hoodie.metadata.enable": "true"}
OF_HUDI = {
    "metadata__enable": "true",
    "metadata__index__column__stats__enable": "false",
    "metadata__index__partition__stats__enable": "false",
}
COW, MOR = SHAPES[0], MERGE_ON_READ[0]
SAMPLED = (("0.15.0", 6, COW), ("1.2.0", 9, MOR))
LOGS_MERGED = {
    "hoodie.metadata.log.compaction.enable": "true",
    "hoodie.metadata.log.compaction.blocks.threshold": "3",
    "hoodie.metadata.compact.max.delta.commits": "100",
}


def asked(versions: Iterable[tuple[str, int]]) -> pytest.MarkDecorator:
    """Runs a test with both types of tables, with each release and table version."""
    return pytest.mark.parametrize(
        ("release", "table_version", "shape"),
        [
            pytest.param(*case, shape, marks=peer_marks(case[0], sampled=(*case, shape) in SAMPLED))
            for case in versions
            for shape in (COW, MOR)
        ],
        ids=str,
        indirect=["table_version"],
    )


class Kept:
    """A table whose metadata table both keep."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self.shared = Shared.make(path, shape)

    @property
    def table(self) -> HudiTable:
        return HudiTable.open(str(self.shared.path), KEPT)

    def merge_logs(self) -> None:
        before = self.log_compactions()
        maintain_metadata_table(self.table.with_options(LOGS_MERGED))
        assert self.log_compactions() > before, "no log compaction"

    def log_compactions(self) -> frozenset[str]:
        return frozenset(open_own(self.table).timeline.files.log_compactions)

    def ours(self, operation: str, rows: list[dict[str, object]]) -> None:
        self.shared.ours(operation, rows, writer=LocalWriter(self.table))

    def check(self, hudi: Jvm) -> None:
        """Listed by metadata or by storage, these are the same files and rows."""
        assert_listed(self.table)
        expected, path = self.shared.expected(), self.shared.path
        for enabled in ("true", "false"):
            found = difference(hudi.read(path, {"hoodie.metadata.enable": enabled}).rows, expected, without=META)
            assert not found, f"metadata {enabled}: {found}"
        assert not difference(self.shared.read(), expected, without=META)


def assert_listed(table: HudiTable) -> None:
    metadata, view = table.metadata_table(), table.view(metadata=False)
    assert metadata is not None, "it is not kept"
    assert set(metadata.partitions()) <= set(view.partitions())
    for partition in view.partitions():
        files = [f for f in view.listing.files(partition) if PARTITION_METAFILE not in f.name]
        there = {f.path: f.size_bytes for f in files if not f.name.endswith(".crc")}  # of Hadoop's local storage
        assert {file.path: file.size_bytes for file in metadata.files(partition)} == there


@asked(ASKED)
def test_hudi_reads_and_keeps_it(
    shape: Shape, release: str, table_version: int, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    kept = Kept(tmp_path / "t", replace(shape, name=f"{shape.name}_metadata"))
    source, hudi = kept.shared.source, jvm(release)
    kept.ours("insert", source.new(20))
    kept.ours("upsert", source.mixed(8, 4))
    kept.ours("delete", source.again(3))
    kept.check(hudi)
    kept.shared.theirs(hudi, "upsert", source.mixed(8, 4), **OF_HUDI)
    kept.check(hudi)
    for _ in range(10):
        kept.ours("upsert", source.mixed(3, 1))
    if shape.type.value == "MERGE_ON_READ":
        compact(kept.table)
    for step in maintain(kept.table):
        step.run()
    assert open_own(kept.table).timeline.completed().of(Action.COMMIT).instants, "no compaction"
    kept.ours("upsert", source.mixed(3, 1))
    kept.check(hudi)
    kept.shared.theirs(hudi, "upsert", source.mixed(8, 4), **OF_HUDI)
    kept.check(hudi)
    before = dict(kept.shared.rows)
    kept.ours("insert", source.new(5))
    last = kept.table.timeline.data().completed().last()
    assert last is not None
    roll_back_instant(kept.table, last.requested_time)
    kept.shared.rows = before
    kept.check(hudi)
    kept.shared.theirs(hudi, "upsert", source.mixed(8, 4), **OF_HUDI)
    kept.check(hudi)
    kept.ours("upsert", source.mixed(3, 1))
    kept.check(hudi)


@asked((*ASKED, ("1.0.2", 8)))
def test_either_merges_its_log_files(
    shape: Shape, release: str, table_version: int, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    """Hudi before 1.2 applies the merged entries beside those that they stand for."""
    kept = Kept(tmp_path / "t", replace(shape, name=f"{shape.name}_metadata_logs"))
    source, hudi = kept.shared.source, jvm(release)
    kept.ours("insert", source.new(20))
    for _ in range(3):
        kept.ours("upsert", source.mixed(8, 4))
    clean(kept.table.with_options({"hoodie.cleaner.commits.retained": "1"}))
    kept.merge_logs()
    kept.check(hudi)
    kept.ours("upsert", source.mixed(8, 4))
    kept.check(hudi)
    before = kept.log_compactions()
    merging = {key.removeprefix("hoodie.").replace(".", "__"): value for key, value in LOGS_MERGED.items()}
    for _ in range(4):
        kept.shared.theirs(hudi, "upsert", source.mixed(3, 1), **OF_HUDI, **merging)
    assert kept.log_compactions() > before, "none of Hudi"
    kept.check(hudi)
    for _ in range(3):
        kept.ours("upsert", source.mixed(3, 1))
        kept.check(hudi)
    kept.merge_logs()  # Hudi's among what it merges
    kept.check(hudi)
    kept.shared.theirs(hudi, "upsert", source.mixed(8, 4), **OF_HUDI)
    kept.check(hudi)
    maintain_metadata_table(kept.table.with_options({"hoodie.metadata.compact.max.delta.commits": "1"}))
    kept.ours("upsert", source.mixed(3, 1))
    kept.check(hudi)
    assert not check_metadata_table(kept.table).differences
