"""One scripted history of a table, by skep and by JVM Hudi: every action that a writer of a table comes to."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from peer_arrow import arrow_table
from peer_rows import Columns, Row, Source, decimal, integer, word

import skep
from benchmarks.peers.jvm import Jvm
from skep_format.options import Options
from skep_table.merge.rows import DELETED, PARTIAL
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import execute_pending_clusterings, schedule_clustering
from skep_table.services.compaction.compact import compact_logs, execute_pending_compactions, schedule_compaction
from skep_table.services.undo.rollback import create_savepoint, delete_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
STATIONS = ("before the clean", "archived once", "archived twice")
PARTS, RESTORED = "with parts", "restored"

# Without lists: 1.0.2 can't rewrite those that its own bulk_insert wrote.
COLUMNS = Columns({"n": ("int", integer(32)), "amount": ("decimal(10,2)", decimal(10, 2)), "note": ("string", word)})
ONE_COMMIT = {"hoodie.clean.commits.retained": "1", "hoodie.cleaner.commits.retained": "1"}
ARCHIVING = {
    **ONE_COMMIT,
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.timeline.compaction.batch.size": "2",
    "hoodie.compact.inline.max.delta.commits": "1",
}
CLUSTERING = {
    "hoodie.clustering.plan.strategy.sort.columns": "ts,id",
    "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true",
}
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
TWO_BLOCKS = {"hoodie.log.compaction.blocks.threshold": "2"}
PARQUET_BLOCKS = {"hoodie.logfile.data.block.format": "parquet"}


def options_of(kind: str, version: int) -> dict[str, str]:
    """The options of both writers."""
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.write.table.version": str(version),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.index.type": "SIMPLE",
        # with it, a bulk insert into a merge-on-read table is a commit instead of a delta commit
        "hoodie.datasource.write.row.writer.enable": "false",
        "hoodie.metadata.enable": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.compact.inline": "false",
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.embed.timeline.server": "false",
        **{f"hoodie.{each}.shuffle.parallelism": "1" for each in ("insert", "upsert", "bulkinsert", "delete")},
    }


@dataclass
class Kept:
    """A table with one writer."""

    folder: Path
    options: dict[str, str]

    @property
    def path(self) -> Path:
        return self.folder / "t"

    def write(self, operation: str, rows: list[Row], source: Source, **more: str) -> None:
        raise NotImplementedError

    def update_parts(self, rows: list[Row], source: Source, columns: tuple[str, ...]) -> None:
        raise NotImplementedError

    def compact(self) -> None:
        raise NotImplementedError

    def write_and_compact_logs(self, rows: list[Row], source: Source) -> None:
        raise NotImplementedError

    def cluster(self) -> None:
        raise NotImplementedError

    def clean(self) -> None:
        raise NotImplementedError

    def archive(self) -> None:
        raise NotImplementedError

    def save(self) -> None:
        raise NotImplementedError

    def unsave(self) -> None:
        raise NotImplementedError

    def roll_back(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    @property
    def hudi(self) -> HudiTable:
        return HudiTable.open(str(self.path))

    def newest(self) -> str:
        last = self.hudi.timeline.data().completed().last()
        assert last is not None
        return last.requested_time

    def station(self, name: str) -> None:
        """A copy of the table as it is at this point of its history."""
        shutil.copytree(self.path, self.folder / name)


class Ours(Kept):
    """Of skep."""

    def write(self, operation: str, rows: list[Row], source: Source, **more: str) -> None:
        options = {**self.options, **more, "hoodie.datasource.write.operation": operation}
        frame = arrow_table(rows, source.ddl())
        skep.write(frame).format("hudi").options(**options).mode("append").save(self.path)

    def _open(self, **options: str) -> HudiTable:
        return self.hudi.with_context(options=Options(options))

    def update_parts(self, rows: list[Row], source: Source, columns: tuple[str, ...]) -> None:
        new = {row["id"]: row for row in arrow_table(rows, source.ddl()).select(["id", *columns]).to_pylist()}

        def changed(table: HudiTable) -> pa.Table:
            stored = read(table, ReadRequest()).to_arrow()
            kept = [row | new[row["id"]] for row in stored.to_pylist() if row["id"] in new]
            made = pa.Table.from_pylist(kept, stored.schema)
            for name, text in ((DELETED, False), (PARTIAL, True)):
                made = made.append_column(name, pa.array([text] * len(kept)))
            return made

        LocalWriter(self._open()).change(changed, columns)

    def compact(self) -> None:
        assert schedule_compaction(self._open()) is not None
        execute_pending_compactions(self._open())

    def write_and_compact_logs(self, rows: list[Row], source: Source) -> None:
        self.write("upsert", rows, source)
        assert compact_logs(self._open(**TWO_BLOCKS))

    def cluster(self) -> None:
        assert schedule_clustering(self._open(**CLUSTERING)) is not None
        execute_pending_clusterings(self._open())

    def clean(self) -> None:
        assert clean(self._open(**ONE_COMMIT))

    def archive(self) -> None:
        assert archive(self._open(**ARCHIVING)).instants

    def save(self) -> None:
        create_savepoint(self._open(), user="user", comments="why")

    def unsave(self) -> None:
        delete_savepoint(self._open(), next(iter(self.hudi.savepoints())))

    def roll_back(self) -> None:
        roll_back_instant(self._open(), self.newest())

    def restore(self) -> None:
        assert restore(self._open(), next(iter(self.hudi.savepoints())))


@dataclass
class Theirs(Kept):
    """Of JVM Hudi."""

    jvm: Jvm = field(kw_only=True)

    def write(self, operation: str, rows: list[Row], source: Source, **more: str) -> None:
        self.jvm.write(self.path, rows, source.ddl(), {**self.options, **more}, operation=operation)

    def _service(self, *calls: list[Any], **options: str) -> None:
        given = {**self.options, "hoodie.datasource.write.operation": "upsert", **options}
        self.jvm.request("services", path=str(self.path), options=given, calls=list(calls))

    def _call(self, procedure: str, arguments: str, **settings: str) -> None:
        given = {key: value for key, value in self.options.items() if "datasource" not in key} | settings
        self.jvm.sql(f"call {procedure}(path => '{self.path}', {arguments})", given)

    def update_parts(self, rows: list[Row], source: Source, columns: tuple[str, ...]) -> None:
        self.jvm.request("view", name="parts_rows", rows=rows, schema=source.ddl())
        self.jvm.sql("DROP TABLE IF EXISTS parts")
        self.jvm.sql(f"CREATE TABLE parts USING hudi LOCATION '{self.path}'")
        sets = ", ".join(f"{name} = s.{name}" for name in columns)
        settings = {key: value for key, value in self.options.items() if "datasource" not in key}
        text = f"MERGE INTO parts AS t USING parts_rows AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET {sets}"
        self.jvm.sql(text, settings)

    def compact(self) -> None:
        self._call("run_compaction", "op => 'schedule'", **EVERY_LOG)
        self._call("run_compaction", "op => 'run'", **EVERY_LOG)

    def write_and_compact_logs(self, rows: list[Row], source: Source) -> None:
        self.write("upsert", rows, source, **TWO_BLOCKS, **{"hoodie.log.compaction.inline": "true"})

    def cluster(self) -> None:
        self._call("run_clustering", "op => 'schedule', order => 'ts,id'", **CLUSTERING)
        self._call("run_clustering", "op => 'execute'", **CLUSTERING)

    def clean(self) -> None:
        self._service(["clean"], **ONE_COMMIT)

    def archive(self) -> None:
        self._service(["archive"], **ARCHIVING)

    def save(self) -> None:
        self._service(["savepoint", self.newest(), "user", "why"])

    def unsave(self) -> None:
        self._service(["deleteSavepoint"])

    def roll_back(self) -> None:
        self._service(["rollback", self.newest()])

    def restore(self) -> None:
        self._service(["restoreToSavepoint"])


def life(table: Kept, kind: str) -> None:
    """The history, with a copy of the table at each of STATIONS."""
    source = Source("bytes", COLUMNS)

    def fresh(part: str, count: int) -> list[Row]:
        return [{**row, "part": part} for row in source.new(count)]

    first = fresh("north", 6) + fresh("south", 6)
    table.write("bulk_insert", first, source)
    source.born.update({row["id"]: row for row in first})
    table.write("upsert", source.again(8), source)
    table.write("delete", source.forget(source.again(2)), source)
    if kind == MOR:
        table.write_and_compact_logs(source.again(4), source)
        table.compact()
        table.write("upsert", source.again(4), source, **PARQUET_BLOCKS)
    table.write("insert", fresh("north", 2), source)
    table.write("insert_overwrite", fresh("south", 3), source)
    table.write("delete_partition", source.new(1), source, **{"hoodie.datasource.write.partitions.to.delete": "south"})
    table.write("upsert", fresh("north", 2), source)
    table.save()
    table.write("upsert", fresh("north", 2), source)
    table.roll_back()
    table.cluster()
    table.station(STATIONS[0])
    table.clean()
    table.unsave()
    for _ in range(3):
        table.write("upsert", fresh("north", 2), source)
    table.clean()
    table.archive()
    table.station(STATIONS[1])
    table.write("upsert", source.again(3), source)
    if kind == MOR:
        table.compact()
    table.write("upsert", fresh("east", 1), source)
    table.clean()
    table.archive()
    table.station(STATIONS[2])


def life_with_parts(table: Kept) -> None:
    """Updates of some columns only, in a merge-on-read table, then a copy of it."""
    source = Source("parts", COLUMNS)
    first = [{**row, "part": "north"} for row in source.new(6)]
    source.born.update({row["id"]: row for row in first})
    table.write("insert", first, source)
    table.update_parts(source.again(3), source, ("ts", "n"))
    table.update_parts(source.again(3), source, ("ts", "note"))
    table.station(PARTS)


def life_restored(table: Kept) -> None:
    """A restore to a savepoint, over an upsert and an overwrite of the whole table, then a copy of it."""
    source = Source("restored", COLUMNS)
    first = [{**row, "part": "north"} for row in source.new(6)]
    source.born.update({row["id"]: row for row in first})
    table.write("insert", first, source)
    table.write("upsert", source.again(3), source)
    table.save()
    table.write("upsert", source.again(3), source)
    table.write("insert_overwrite_table", [{**row, "part": "south"} for row in source.new(3)], source)
    table.station(f"before {RESTORED}")
    table.restore()
    table.station(RESTORED)
