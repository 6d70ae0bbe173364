"""Tables with base files in ORC: JVM Hudi and skep make the same, read each other's, and write them in turn.

With Spark 3.5 each release does a part of it. 0.15.0 finds keys by buckets only, and reads no merge-on-read tables; 1.x
reads no nested columns but with `spark.sql.orc.enableVectorizedReader=false`; none reads the footers with Bloom filters
and key ranges (NoSuchMethodError), so that these are read by ORC's own reader here. Timestamps are whole seconds:
Hudi loses the milliseconds of others in ORC files. 1.2.0 writes no dates there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from peer_arrow import arrow_table
from peer_cases import COW, GENERATORS, KEYGEN, KEYS, MODELS, MOR, PARTS, PAYLOAD
from peer_rows import (
    Columns,
    Row,
    Source,
    array,
    binary,
    date,
    decimal,
    integer,
    mapping,
    single,
    struct,
    timestamp,
    word,
)
from peer_shared import peer_marks

import skep
from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.basefile import read_footer
from skep_format.json_text import json_lines
from skep_format.timeline.instant import Action
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.services.fsck import fsck
from skep_table.table import HudiTable

Options = dict[str, str]
Start = Callable[[str], Jvm]
OF_THE_WRITE = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")
BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
SIMPLE = {"hoodie.index.type": "SIMPLE"}
SAMPLED = (("0.15.0", 6, COW), ("1.2.0", 9, MOR))
SLOW = (("1.1.1", 9, COW), ("1.1.1", 9, MOR), ("1.2.0", 6, MOR), ("1.2.0", 9, COW))


def second(r: Any) -> str:
    return timestamp(r)[:-8] + ".000000Z"


COLUMNS = Columns(
    {
        "n": ("int", integer(32)),
        "f": ("float", single),
        "ok": ("boolean", lambda r: r.random() < 0.5),
        "note": ("string", word),
        "raw": ("binary", binary),
        "moment": ("timestamp", second),
        "tags": ("array<string>", array(word)),
        "named": ("map<string,int>", mapping(integer(32))),
        "place": ("struct<city:string,at:timestamp,l:array<int>>", struct(city=word, at=second, l=array(integer(32)))),
    }
)


def cases() -> Iterator[Any]:
    for release, version, kind in (
        *SAMPLED,
        ("1.1.1", 9, COW),
        ("1.1.1", 9, MOR),
        ("1.2.0", 6, MOR),
        ("1.2.0", 9, COW),
    ):
        marks = peer_marks(release, sampled=(release, version, kind) in SAMPLED)
        yield pytest.param(release, version, kind, marks=marks, id=f"{release}-{version}-{kind[:4].lower()}")


@dataclass
class Pair:
    """A table that Hudi made and one that skep made, of the same rows."""

    hudi: Jvm
    folder: Path
    options: Options
    source: Source

    def write(self, operation: str, rows: list[Row], *, crossed: bool = False) -> None:
        """Each writes into its own table, or into the other's."""
        theirs, ours = ("ours", "theirs") if crossed else ("theirs", "ours")
        self.hudi.write(self.folder / theirs, rows, self.source.ddl(), self.options, operation=operation)
        self.ours(operation, rows, ours)

    def ours(self, operation: str, rows: list[Row], name: str) -> None:
        """skep finds keys by the filters in footers where Hudi can't."""
        bloom = {} if self.options["hoodie.index.type"] == "BUCKET" else {"hoodie.index.type": "BLOOM"}
        options = {**self.options, **bloom, "hoodie.datasource.write.operation": operation}
        frame = arrow_table(rows, self.source.ddl())
        skep.write(frame).format("hudi").options(**options).mode("append").save(self.folder / name)

    def compact(self) -> None:
        """skep compacts the logs of both; Hudi 1.x can't in ORC tables (`Not support write to Orc file`)."""
        for name in ("ours", "theirs"):
            assert compact(self.table(name))
            assert self.table(name).timeline.completed().of(Action.COMMIT).instants

    def agree(self, after: str) -> None:
        by_hudi = {name: self.hudi.read(self.folder / name).rows for name in ("ours", "theirs")}
        found = difference(by_hudi["ours"], by_hudi["theirs"], without=OF_THE_WRITE)
        assert not found, f"after {after}, Hudi reads other rows in skep's table than in its own: {found}"
        for name, rows in by_hudi.items():
            found = difference(self.read(name), rows)
            assert not found, f"after {after}, skep reads {name} otherwise than Hudi: {found}"
            assert not fsck(self.table(name))
            assert not [each for each in (self.folder / name).rglob("*.parquet") if ".hoodie" not in each.parts]

    def table(self, name: str) -> HudiTable:
        return HudiTable.open(str(self.folder / name), self.options)

    def read(self, name: str) -> list[Row]:
        result = read(self.table(name), ReadRequest())
        return [json.loads(line) for batch in result.to_batches() for line in bytes(json_lines(batch)).splitlines()]


@pytest.mark.filterwarnings("ignore::skep_format.options.IneffectiveOptionWarning")
@pytest.mark.parametrize(("release", "version", "table_type"), list(cases()))
def test_both_writers_make_and_keep_the_same_orc_table(
    release: str, version: int, table_type: str, by_rows: Start, tmp_path: Path, is_thorough: bool
) -> None:
    columns = COLUMNS if release == "1.2.0" else COLUMNS.with_(day=("date", date))
    columns = columns.with_(amount=("decimal(12,3)", decimal(12, 3)))
    options = options_of(release, version, table_type)
    pair = Pair(by_rows(release), tmp_path, options, Source("orc", columns, ("north", "south"), "string"))
    pair.write("bulk_insert", pair.source.new(20))
    pair.agree("a bulk insert")
    check_footers(pair)
    pair.write("upsert", pair.source.mixed(10, 5), crossed=True)
    pair.agree("an upsert into the other's table")
    pair.write("delete", pair.source.forget(pair.source.again(4)), crossed=True)
    pair.write("upsert", pair.source.mixed(6, 2))
    pair.agree("more of both")
    if table_type == MOR:
        pair.compact()
        pair.agree("compactions")
        if is_thorough:
            pair.write("upsert", pair.source.mixed(6, 2), crossed=True)
            pair.agree("writes after them")


def check_footers(pair: Pair) -> None:
    """Java's ORC finds in both tables what Hudi keeps in footers, and skep's are alike."""
    for file in pair.folder.rglob("*.orc"):
        name = file.relative_to(pair.folder).parts[0]
        by_java = pair.hudi.request("orc_footer", path=str(file))["entries"]
        footer = read_footer(pair.table(name).storage, str(file.relative_to(pair.folder / name)))
        assert footer.key_filter is not None
        assert by_java == {**footer.entries, "org.apache.hudi.bloomfilter": footer.key_filter.decode()}
        assert {"orc.avro.schema", "org.apache.hudi.bloomfilter", "hoodie_min_record_key"} <= set(by_java)
        assert footer.bloom is not None
        assert footer.min_key in {row["_hoodie_record_key"] for row in pair.read(name)}
        with_meta = pair.table(name).stored_schema().with_meta()
        assert footer.schema.names() == with_meta.names()


def options_of(release: str, version: int, table_type: str) -> Options:
    newer = {"hoodie.write.table.version": str(version), "hoodie.write.auto.upgrade": "false"}
    return {
        "hoodie.table.name": "pair",
        "hoodie.table.base.file.format": "ORC",
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
        # Spark's own writer of rows, which bulk inserts take by default, writes no ORC.
        "hoodie.datasource.write.row.writer.enable": "false",
        **(BUCKET if release == "0.15.0" else {**SIMPLE, "hoodie.base.file.format": "ORC"}),
        **(newer if release != "0.15.0" else {}),
    }
