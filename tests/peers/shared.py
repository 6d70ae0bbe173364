"""A table that skep makes and shares with Hudi, and a model of what must be in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer_arrow import arrow_schema, arrow_table
from peer_rows import EVERY_TYPE, FEW, Columns, Row, Source, word

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.versions import known_versions
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter


@dataclass(frozen=True)
class Shape:
    """What kind of table: keys, partitions, columns."""

    name: str
    columns: Columns = FEW
    record_key: tuple[str, ...] = ("id",)
    partition_by: tuple[str, ...] = ("part",)
    ordering: str | None = "ts"
    partitions: tuple[Any, ...] = ("north", "south", "east")
    part_type: str = "string"
    hive_style: bool = False
    url_encode: bool = False
    type: TableType = TableType.COPY_ON_WRITE

    def __str__(self) -> str:
        return self.name


SHAPES = (
    Shape("partitioned"),
    Shape("hive_style", hive_style=True),
    Shape("not_partitioned", partition_by=()),
    Shape("composite_keys", record_key=("id", "k"), hive_style=True),
    Shape("two_partition_columns", partition_by=("part", "k")),
    Shape("every_type", columns=EVERY_TYPE),
    Shape("without_ordering", ordering=None),
    Shape("dates", partitions=("2024-02-29", "1999-12-31"), part_type="date", hive_style=True),
    Shape("encoded_paths", partitions=("a b", "x/y", "ü=1", "50%"), url_encode=True),
)

MERGE_ON_READ = (
    Shape("mor", type=TableType.MERGE_ON_READ),
    Shape("mor_every_type", columns=EVERY_TYPE, type=TableType.MERGE_ON_READ),
    Shape("mor_without_ordering", ordering=None, type=TableType.MERGE_ON_READ),
    Shape("mor_not_partitioned", partition_by=(), record_key=("id", "k"), type=TableType.MERGE_ON_READ),
)
META = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)


PEERS = (("0.15.0", 6), ("1.2.0", 6), ("1.2.0", 9), ("1.1.1", 9), ("1.0.2", 8))
"""The releases of Hudi that are asked, and the version of the tables that each is asked about."""
EVERY_COMMIT = (("0.15.0", 6), ("1.2.0", 6))
"""Those that all tests ask; what the others are asked is sampled, and the rest of it is slow."""
WITH_9 = (*EVERY_COMMIT, ("1.2.0", 9))
"""With the newest version, for the tests that show most of it."""


def peers(sampled: Iterable[tuple[str, int]] = EVERY_COMMIT) -> pytest.MarkDecorator:
    """Runs a test with each release and table version (`release`, and `table_version`, whose tables tests then make).

    What is not `sampled` is slow.
    """
    return pytest.mark.parametrize(
        ("release", "table_version"),
        [
            pytest.param(release, version, marks=peer_marks(release, sampled=(release, version) in sampled))
            for release, version in PEERS
        ],
        indirect=["table_version"],
    )


def for_hudi_rs(shapes: Iterable[Shape]) -> pytest.MarkDecorator:
    """Runs a test with each shape and table version; of the versions that are not 6, the first shape of each type."""
    chosen, shapes = (SHAPES[0], MERGE_ON_READ[0]), tuple(shapes)
    return pytest.mark.parametrize(
        ("table_version", "shape"),
        [
            pytest.param(version, shape, marks=[] if version == 6 or shape in chosen else pytest.mark.slow)
            for version in known_versions()
            for shape in shapes
        ],
        ids=str,
        indirect=["table_version"],
    )


def peer_marks(release: str, *, sampled: bool) -> list[pytest.MarkDecorator]:
    """Of a test that asks a release."""
    return [pytest.mark.peer(f"hudi-{release}"), *([] if sampled else [pytest.mark.slow])]


@dataclass
class Shared:
    """One table on local disk, written by skep and by Hudi."""

    path: Path
    shape: Shape
    source: Source
    rows: dict[Any, Row] = field(default_factory=dict)

    @classmethod
    def make(cls, path: Path, shape: Shape) -> Shared:
        source = Source(shape.name, shape.columns, shape.partitions, shape.part_type)
        spec = TableSpec(
            name=shape.name,
            schema=arrow_schema(source.ddl()),
            record_key=shape.record_key,
            partition_by=shape.partition_by,
            ordering=shape.ordering,
            hive_style=shape.hive_style,
            url_encode=shape.url_encode,
            type=shape.type,
        )
        create_table(LocalStorage(str(path)), spec)
        return cls(path, shape, source)

    # -- writes ---------------------------------------------------------------------------------------------------

    def ours(self, operation: str, rows: list[Row], *, writer: Any = None) -> None:
        """skep writes rows; `writer` is the local one unless given."""
        writer = writer or LocalWriter(self.open())
        getattr(writer, operation)(arrow_table(rows, self.source.ddl()))
        self._note(operation, rows)

    def theirs(self, hudi: Jvm, operation: str, rows: list[Row], **more: str) -> None:
        """JVM Hudi writes rows into the same table; `more` are further options, `__` for `.` and without `hoodie.`."""
        given_options = {f"hoodie.{key.replace('__', '.')}": value for key, value in more.items()}
        options = {**self.hudi_options(hudi.release), **given_options}
        hudi.write(self.path, rows, self.source.ddl(), options, operation=operation)
        self._note(operation, rows)

    def life(self, *, writer: Any = None) -> None:
        """Inserts, updates, late updates, deletes, a key that comes back, and a new column."""
        source = self.source
        self.ours("bulk_insert", source.new(20), writer=writer)
        self.ours("insert", source.new(20), writer=writer)
        self.ours("upsert", source.mixed(15, 8), writer=writer)
        if self.shape.ordering:
            self.late(writer=writer)
        removed, back = self.to_delete(6)
        self.ours("delete", removed, writer=writer)
        self.ours("upsert", back or source.again(2), writer=writer)
        source.columns = source.columns.with_(added=("string", word))
        self.ours("upsert", source.mixed(10, 4), writer=writer)

    def to_delete(self, count: int) -> tuple[list[Row], list[Row]]:
        """Rows to delete by key, and those of them to write again: none in logs that Hudi 1.0 reads.

        It compares the ordering value of a delete by key with that of a row behind it, and fails: their types differ.
        """
        removed = self.source.again(count)
        if self.open().config.version == 8 and self.shape.type is TableType.MERGE_ON_READ and self.shape.ordering:
            return self.source.forget(removed), []
        return removed, removed[:2]

    def late(self, *, writer: Any = None) -> None:
        """Updates with an ordering value from before all others: they change nothing."""
        before, born = dict(self.rows), dict(self.source.born)
        self.ours("upsert", self.source.again(5, late=True), writer=writer)
        self.rows, self.source.born = before, born

    def crash(self, rows: list[Row], *options: str) -> None:
        """skep upserts in another process, which dies at the last moment before the instant is completed."""
        script = Path(__file__).with_name("dying_writer.py")
        file = self.path.parent / "dying.arrow"
        table = arrow_table(rows, self.source.ddl())
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
            out.write_table(table)
        died = subprocess.run([sys.executable, str(script), str(self.path), str(file), *options], check=False)
        assert died.returncode == 9

    # -- reads ----------------------------------------------------------------------------------------------------

    def open(self) -> HudiTable:
        return HudiTable.open(str(self.path))

    def read(self, options: dict[str, str] | None = None) -> list[Row]:
        result = read(self.open(), ReadRequest.of(Options(options or {})))
        text = b"".join(bytes(json_lines(batch)) for batch in result.to_batches()).decode()
        return [json.loads(line) for line in text.split("\n") if line]

    def expected(self) -> list[Row]:
        """The data columns that must be there."""
        names = [name.strip("`") for name in arrow_schema(self.source.ddl()).names]
        return [{name: row.get(name) for name in names} for row in self.rows.values()]

    def hudi_options(self, release: str) -> dict[str, str]:
        """The options of a JVM writer of this table. Keys and partitions it must know, the rest is in the table."""
        newer = {
            "hoodie.write.table.version": str(self.open().config.version),
            "hoodie.write.auto.upgrade": "false",
            # One key field and several partition fields: 1.1 and later refuse such tables by default: the key is
            # written without its field's name, as 0.14.1 to 1.0.2 and skep do.
            "hoodie.write.complex.keygen.validation.enable": "false",
            "hoodie.write.complex.keygen.new.encoding": "true",
        }
        shape, payload = self.shape, self.open().config.payload_class
        return {
            "hoodie.table.name": shape.name,
            "hoodie.datasource.write.table.type": shape.type.value,
            "hoodie.datasource.write.recordkey.field": ",".join(shape.record_key),
            "hoodie.datasource.write.partitionpath.field": ",".join(shape.partition_by),
            "hoodie.datasource.write.hive_style_partitioning": str(shape.hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(shape.url_encode).lower(),
            "hoodie.datasource.write.keygenerator.class": self._generator(),
            **({"hoodie.datasource.write.payload.class": payload} if payload else {}),
            **({"hoodie.datasource.write.precombine.field": shape.ordering} if shape.ordering else {}),
            "hoodie.index.type": "BLOOM",
            "hoodie.metadata.enable": "false",
            "hoodie.embed.timeline.server": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.compact.inline": "false",  # on for merge-on-read tables by default
            "hoodie.upsert.shuffle.parallelism": "2",
            "hoodie.delete.shuffle.parallelism": "2",
            **(newer if release != "0.15.0" else {}),
        }

    def _generator(self) -> str:
        kind = {"SIMPLE": "Simple", "COMPLEX": "Complex", "NON_PARTITION": "Nonpartitioned"}
        name = self.open().config.key_generator or "SIMPLE"
        return f"org.apache.hudi.keygen.{kind[name]}KeyGenerator"

    def _note(self, operation: str, rows: list[Row]) -> None:
        for row in rows:
            if operation == "delete":
                self.rows.pop(row["id"], None)
            else:
                self.rows[row["id"]] = row


def index_agrees(shared: Shared, now: HudiTable, index: str, step: str) -> list[Row]:
    """The rows that must be there. The index is kept, indexes state what the files hold, and skep reads these rows."""
    assert index in now.config.metadata_partitions, step
    found = check_metadata_table(now)
    assert not found.differences, f"after {step}: {found.differences}"
    assert not found.skipped, step
    rows = shared.expected()
    assert not (wrong := difference(shared.read(), rows, without=META)), f"skep after {step}: {wrong}"
    return rows


def agree(shared: Shared, hudi: Jvm) -> None:
    """Hudi and skep read the same rows, meta columns and all, and these are what was written."""
    theirs, ours = hudi.read(shared.path).rows, shared.read()
    assert not (found := difference(theirs, shared.expected(), without=META)), f"Hudi reads other rows: {found}"
    assert not (found := difference(ours, theirs)), f"skep reads other rows than Hudi: {found}"
