"""Tables that keep less or more in their files than others: both make and read the same, and write on in turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from peer_arrow import arrow_table
from peer_cases import COW, GENERATORS, HIVE, KEYGEN, KEYS, MODELS, MOR, PARTS, PAYLOAD
from peer_rows import FEW, Row, Source

import skep
from benchmarks.peers.bundle import RELEASES
from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_format.timeline.instant import Action
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable

Options = dict[str, str]
Start = Callable[[str], Jvm]
OPERATION = "_hoodie_operation"
OF_THE_WRITE = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")
SIMPLE = {"hoodie.index.type": "SIMPLE"}
DROPPED = {"hoodie.datasource.write.drop.partition.columns": "true", **HIVE}


@dataclass(frozen=True)
class Kind:
    options: Options
    part_type: str = "string"
    partitions: tuple[Any, ...] = ("north", "south", "east")


KINDS = {
    "virtual_keys": Kind({"hoodie.populate.meta.fields": "false", **SIMPLE}),
    "virtual_keys_unpartitioned": Kind(
        {
            "hoodie.populate.meta.fields": "false",
            PARTS: "",
            KEYGEN: GENERATORS + "NonpartitionedKeyGenerator",
            **SIMPLE,
        }
    ),
    "dropped_columns": Kind(DROPPED),
    "dropped_numbers": Kind({**DROPPED, **SIMPLE}, "bigint", (7, -3, 2**40)),
    "dropped_dates": Kind(DROPPED, "date", ("2024-02-29", "1969-12-31")),
    "no_key_filter": Kind({"hoodie.parquet.bloom.filter.enabled": "false", **SIMPLE}),
    "operation_field": Kind({"hoodie.allow.operation.metadata.field": "true"}),
}


def cases() -> Iterator[Any]:
    for release, kind, name in product(RELEASES, (COW, MOR), KINDS):
        marks = [pytest.mark.peer(f"hudi-{release}"), pytest.mark.slow]
        yield pytest.param(release, kind, name, marks=marks, id=f"{release}-{kind[:4].lower()}-{name}")


@dataclass
class Pair:
    """One table that Hudi made and one that skep made, of the same rows."""

    hudi: Jvm
    folder: Path
    options: Options
    source: Source
    unsettled: tuple[str, ...] = ()
    hudi_writes: bool = True

    def write(self, operation: str, rows: list[Row], *, crossed: bool = False) -> None:
        """Each writes into its own table, or into the other's."""
        theirs, ours = ("ours", "theirs") if crossed else ("theirs", "ours")
        if self.hudi_writes:
            self.hudi.write(self.folder / theirs, rows, self.source.ddl(), self.options, operation=operation)
        else:
            ours = "ours"
        options = {**self.options, "hoodie.datasource.write.operation": operation}
        frame = arrow_table(rows, self.source.ddl())
        skep.write(frame).format("hudi").options(**options).mode("append").save(self.folder / ours)

    def compact(self) -> None:
        """Each compacts the other's table; Hudi does so behind an upsert."""
        inline = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
        rows = self.source.mixed(3, 1)
        self.hudi.write(self.folder / "ours", rows, self.source.ddl(), {**self.options, **inline}, operation="upsert")
        upsert = {**self.options, "hoodie.datasource.write.operation": "upsert"}
        frame = arrow_table(rows, self.source.ddl())
        skep.write(frame).format("hudi").options(**upsert).mode("append").save(self.folder / "theirs")
        assert compact(HudiTable.open(str(self.folder / "theirs")))
        for name in ("ours", "theirs"):
            assert HudiTable.open(str(self.folder / name)).timeline.completed().of(Action.COMMIT).instants

    def agree(self, after: str) -> None:
        names = ("ours", "theirs") if self.hudi_writes else ("ours",)
        by_hudi = {name: self.hudi.read(self.folder / name).rows for name in names}
        if self.hudi_writes:
            found = difference(by_hudi["ours"], by_hudi["theirs"], without=(*OF_THE_WRITE, *self.unsettled))
            assert not found, f"after {after}, Hudi reads other rows in skep's table than in its own: {found}"
        for name, rows in by_hudi.items():
            found = difference(self.read(name), rows, without=self.unsettled)
            assert not found, f"after {after}, skep reads {name} otherwise than Hudi: {found}"

    def read(self, name: str) -> list[Row]:
        result = read(HudiTable.open(str(self.folder / name), self.options), ReadRequest())
        return [json.loads(line) for batch in result.to_batches() for line in bytes(json_lines(batch)).splitlines()]


@pytest.mark.parametrize(("release", "table_type", "name"), list(cases()))
def test_both_writers_make_and_keep_the_same_table(
    release: str, table_type: str, name: str, jvm: Start, tmp_path: Path
) -> None:
    kind = KINDS[name]
    source = Source(name, FEW, kind.partitions, kind.part_type)
    pair = Pair(jvm(release), tmp_path, options_of(release, table_type, kind), source)
    if name == "operation_field":
        # Hudi shows the column or not by which file of the latest commit it happens to look into.
        pair.unsettled = (OPERATION,)
        # Spark writers of Hudi can't append to logs there: 0.15.0 fails, 1.2.0 loses the rows, in its own tables, too.
        pair.hudi_writes = table_type == COW
    pair.write("insert", source.new(20))
    pair.write("upsert", source.mixed(10, 5))
    pair.write("delete", source.forget(source.again(4)))
    pair.agree("insert, upsert and delete")
    pair.write("upsert", source.mixed(8, 4), crossed=True)
    pair.agree("an upsert into the other's table")
    pair.write("upsert", source.mixed(6, 2))
    pair.write("delete", source.forget(source.again(4)), crossed=True)
    pair.agree("more of both")
    if table_type == MOR and pair.hudi_writes:
        pair.compact()
        pair.agree("compactions of the other's logs")
        pair.write("upsert", source.mixed(6, 2))
        pair.agree("writes after it")


def options_of(release: str, table_type: str, kind: Kind) -> Options:
    newer = {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}
    return {
        "hoodie.table.name": "pair",
        "hoodie.datasource.write.table.type": table_type,
        KEYS: "id",
        PARTS: "part",
        KEYGEN: GENERATORS + "SimpleKeyGenerator",
        "hoodie.datasource.write.precombine.field": "ts",
        PAYLOAD: MODELS + "DefaultHoodieRecordPayload",
        "hoodie.metadata.enable": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.compact.inline": "false",
        "hoodie.embed.timeline.server": "false",
        **{f"hoodie.{each}.shuffle.parallelism": "2" for each in ("insert", "upsert", "delete")},
        **kind.options,
        **(newer if release != "0.15.0" else {}),
    }
