"""Secondary indexes of dates, timestamps, decimals and booleans: either writer makes them, and both keep them.

Of one column each: Hudi 1.2.0 makes the next index of a table without entries, and reads as if no row had the value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peer_rows import EVERY_TYPE, Columns, Maker, Row, maybe
from peer_shared import MERGE_ON_READ, META, SHAPES, Shape, Shared, index_agrees, peer_marks

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_table.query import ReadRequest
from skep_table.query.read import explain
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.services.metadata.indexing import build_index, drop_index, index_named
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

COW, MOR = SHAPES[0], MERGE_ON_READ[0]
KEPT = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"}
SKIPPING = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
SORTED = {"hoodie.clustering.plan.strategy.sort.columns": "ts,id"}
ONE_COMMIT = {"hoodie.cleaner.commits.retained": "1"}
SQL = {
    "hoodie.write.auto.upgrade": "false",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    **KEPT,
}


def few(make: Maker, count: int = 5) -> Maker:
    """A maker of a few values, so that some have several rows."""
    made: list[Any] = []

    def again(r: Any) -> Any:
        if len(made) < count:
            made.append(make(r))
        return r.choice(made)

    return maybe(again)


def small(r: Any) -> str:
    """Decimals of which Java writes some with an exponent."""
    return str(r.choice(["0.0000000000", "1.0000000000", "-0.0000000012", "12345678901234567890.0000000001"]))


TYPES: dict[str, tuple[str, Maker, str]] = {
    "day": ("date", EVERY_TYPE.of["day"][1], "DATE'{}'"),
    "moment": ("timestamp", EVERY_TYPE.of["moment"][1], "TIMESTAMP'{}'"),
    "cents": ("decimal(5,2)", EVERY_TYPE.of["cents"][1], "CAST('{}' AS DECIMAL(5,2))"),
    "huge": ("decimal(38,10)", small, "CAST('{}' AS DECIMAL(38,10))"),
    "flag": ("boolean", lambda r: r.random() < 0.5, "{}"),
}
CASES = [
    pytest.param(
        release,
        version,
        shape,
        column,
        id=f"{release}-{version}-{shape}-{column}",
        marks=peer_marks(release, sampled=False),
    )
    for release, version, columns in (
        ("1.0.2", 8, ("moment", "cents", "huge", "flag")),
        ("1.1.1", 8, ("moment",)),
        ("1.1.1", 9, ("day", "moment")),
        ("1.2.0", 9, ("day", "moment")),
    )
    for shape in (COW, MOR)
    for column in columns
    if (release, version) != ("1.1.1", 8) or shape is MOR
]


class Both:
    """A table that both write, with a secondary index of one column."""

    def __init__(self, path: Path, shape: Shape, hudi: Jvm, column: str, values: int) -> None:
        kind, make, self.literal = TYPES[column]
        columns = Columns({column: (kind, few(make)), "note": EVERY_TYPE.of["text"]})
        name = f"{shape.name}_{hudi.release.replace('.', '_')}_{column}_{path.parent.name[-1]}"
        self.shared = Shared.make(path, replace(shape, name=name, columns=columns))
        self.hudi, self.column, self.values, self.source = hudi, column, values, self.shared.source
        self.partition = f"secondary_index_by_{column}"

    def table(self, **options: str) -> HudiTable:
        return HudiTable.open(str(self.shared.path), {**KEPT, **options})

    def ours(self, operation: str, rows: list[Row]) -> None:
        self.shared.ours(operation, rows, writer=LocalWriter(self.table()))

    def theirs(self, operation: str, rows: list[Row]) -> None:
        if self.hudi.release == "1.2.0":  # it fails for its own writes beside secondary indexes
            self.ours(operation, rows)
            return
        more = {"metadata__enable": "true", "metadata__record__index__enable": "true", "archive__automatic": "false"}
        self.shared.theirs(self.hudi, operation, rows, **more)

    def make_by_hudi(self) -> None:
        name = self.shared.shape.name
        self.hudi.sql(f"DROP TABLE IF EXISTS {name}")
        self.hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{self.shared.path}'")
        settings = {**SQL, "hoodie.write.table.version": str(self.table().config.version)}
        self.hudi.sql(f"CREATE INDEX by_{self.column} ON {name} ({self.column})", settings)

    def make_by_skep(self) -> None:
        build_index(self.table(), index_named("secondary_index", f"by_{self.column}", [self.column]))

    def check(self, step: str) -> None:
        now = self.table()
        rows = index_agrees(self.shared, now, self.partition, step)
        values = sorted({row[self.column] for row in rows} - {None}, key=str)
        for value in values[: self.values]:
            shown = value.replace("T", " ").replace("Z", "") if isinstance(value, str) else str(value).lower()
            where = f"{self.column} = {self.literal.format(shown)}"
            asked = [row for row in rows if row[self.column] == value]
            theirs = self.hudi.read(self.shared.path, SKIPPING, where=where).rows
            assert not (wrong := difference(theirs, asked, without=META)), f"Hudi after {step}, {where}: {wrong}"
            steps = explain(now, ReadRequest(where=where)).steps
            assert f"by the secondary index by_{self.column}" in [each.by for each in steps], f"{step}, {where}"


@pytest.mark.parametrize(("release", "table_version", "shape", "column"), CASES, indirect=["table_version"])
def test_both_keep_what_either_made(
    release: str,
    table_version: int,
    shape: Shape,
    column: str,
    is_thorough: bool,
    jvm: Callable[[str], Jvm],
    tmp_path: Path,
) -> None:
    both = Both(tmp_path / "t", shape, jvm(release), column, 3 if is_thorough else 1)
    source, is_made_by_hudi = both.source, (release, table_version) != ("1.1.1", 8)
    both.ours("bulk_insert", source.new(16))
    if is_made_by_hudi:
        both.make_by_hudi()
        both.check("their creation")
        both.ours("upsert", source.mixed(8, 4))
        both.check("upsert")
        both.theirs("upsert", source.mixed(8, 4))
        both.check("their upsert")
        drop_index(both.table(), f"by_{column}")
    both.make_by_skep()
    both.check("creation")
    both.theirs("upsert", source.mixed(8, 4))
    both.ours("delete", source.forget(source.again(3)))
    both.check("upsert and delete")
    if both.table().config.is_mor:
        compact(both.table())
    cluster(both.table(**SORTED))
    both.theirs("upsert", source.mixed(6, 2))
    clean(both.table(**ONE_COMMIT))
    both.check("clustering, upsert and clean")
