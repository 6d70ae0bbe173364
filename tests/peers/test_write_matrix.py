"""The same rows with the same options through Hudi's writer and through skep's: the two tables read the same.

The matrix is generated: operations × table type × key generator × index. What `./dev test` runs is a sample in which
each value occurs; the rest is left to `--all`. Each case is one life of a table, in which each step is an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from peer_arrow import arrow_table
from peer_cases import COW, GENERATORS, HIVE, KEYGEN, KEYS, MODELS, MOR, PARTS, PAYLOAD
from peer_rows import Columns, Row, Source, decimal, integer, struct, word
from peer_shared import PEERS, peer_marks

import skep
from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

Options = dict[str, str]
Start = Callable[[str], Jvm]
# When and in which file a row was written differs, and so may the order in which rows of one commit lie.
OF_THE_WRITE = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")

# Without lists: moving rows, Hudi 0.15.0 can't read those that its own bulk_insert wrote.
COLUMNS = Columns(
    {
        "n": ("int", integer(32)),
        "amount": ("decimal(10,2)", decimal(10, 2)),
        "note": ("string", word),
        "place": ("struct<city:string,zip:int>", struct(city=word, zip=integer(32))),
    }
)
TIMES = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    "hoodie.keygen.timebased.timezone": "UTC",
}
GENERATOR: dict[str, Options] = {
    "simple": {KEYGEN: GENERATORS + "SimpleKeyGenerator"},
    "complex": {KEYS: "id,k", PARTS: "part,seq", KEYGEN: GENERATORS + "ComplexKeyGenerator", **HIVE},
    "unpartitioned": {PARTS: "", KEYGEN: GENERATORS + "NonpartitionedKeyGenerator"},
    "timestamp": {PARTS: "ts", KEYGEN: GENERATORS + "TimestampBasedKeyGenerator", **TIMES},
    # Hudi can't read its own tables where a path has more folders than the table has partition columns.
    "custom": {
        PARTS: "part:simple,ts:timestamp",
        KEYGEN: GENERATORS + "CustomKeyGenerator",
        **TIMES,
        "hoodie.keygen.timebased.output.dateformat": "yyyyMMdd",
    },
}
FROM_PATHS: dict[str, tuple[str, ...]] = {"timestamp": ("ts",), "custom": ("part", "ts")}
# Log files of rows that a global index keeps in their partition hold the partition of the new values, and 1.2.0 reads
# that.
KEPT: dict[str, tuple[str, ...]] = {"simple": ("part",), "complex": ("part", "seq")}
INDEX: dict[str, Options] = {
    "bloom": {"hoodie.index.type": "BLOOM"},
    "simple": {"hoodie.index.type": "SIMPLE"},
    "global_bloom": {"hoodie.index.type": "GLOBAL_BLOOM", "hoodie.bloom.index.update.partition.path": "true"},
    "global_simple": {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "false"},
    "bucket": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"},
}
# Each value of each dimension occurs: no kind of table is left to --all alone.
SAMPLE = {
    ("0.15.0", 6, COW, "simple", "global_bloom"),
    ("0.15.0", 6, COW, "complex", "bucket"),
    ("0.15.0", 6, MOR, "custom", "simple"),
    ("0.15.0", 6, MOR, "simple", "bucket"),
    ("1.2.0", 6, COW, "timestamp", "bloom"),
    ("1.2.0", 6, MOR, "unpartitioned", "global_simple"),
    ("1.2.0", 9, MOR, "simple", "bloom"),
}


def cases() -> Iterator[Any]:
    for (release, version), kind, generator, index in product(PEERS, (COW, MOR), GENERATOR, INDEX):
        marks = peer_marks(release, sampled=(release, version, kind, generator, index) in SAMPLE)
        name = f"{release}-{version}-{kind.partition('_')[0].lower()}-{generator}-{index}"
        yield pytest.param(release, version, kind, generator, index, marks=marks, id=name)


@dataclass
class Twins:
    """One table that Hudi writes and one that skep writes."""

    hudi: Jvm
    folder: Path
    options: Options
    source: Source
    # Columns that skep reads as 0.15.0 does, which takes what these key generators make partitions of from the paths.
    read_otherwise: tuple[str, ...] = ()

    def write(self, operation: str, rows: list[Row], more: Options | None = None) -> None:
        given_options = {**self.options, **(more or {})}
        self.hudi.write(self.folder / "theirs", rows, self.source.ddl(), given_options, operation=operation)
        frame = arrow_table(rows, self.source.ddl())
        options = {**given_options, "hoodie.datasource.write.operation": operation}
        skep.write(frame).format("hudi").options(**options).mode("append").save(self.folder / "ours")

    def agree(self, after: str) -> None:
        theirs = self.hudi.read(self.folder / "theirs").rows
        by_hudi = self.hudi.read(self.folder / "ours").rows
        found = difference(by_hudi, theirs, without=OF_THE_WRITE)
        assert not found, f"after {after}, Hudi reads other rows in skep's table than in its own: {found}"
        found = difference(self.read(), by_hudi, without=self.read_otherwise)
        assert not found, f"after {after}, skep reads its table otherwise than Hudi: {found}"

    def read(self) -> list[Row]:
        import json

        result = read(HudiTable.open(str(self.folder / "ours"), self.options), ReadRequest())
        return [json.loads(line) for batch in result.to_batches() for line in bytes(json_lines(batch)).splitlines()]


# Hudi's options are given to both, those too that have no effect here.
@pytest.mark.filterwarnings("ignore::skep_format.options.IneffectiveOptionWarning")
@pytest.mark.parametrize(("release", "version", "kind", "generator", "index"), list(cases()))
def test_both_writers_make_the_same_table(
    release: str, version: int, kind: str, generator: str, index: str, jvm: Start, tmp_path: Path
) -> None:
    options = options_of(release, version, kind, generator, index)
    otherwise = FROM_PATHS.get(generator, ())
    if kind == MOR and index == "global_simple":
        otherwise = KEPT.get(generator, otherwise)
    source = Source(f"{generator}{index}", COLUMNS)
    twins = Twins(jvm(release), tmp_path, options, source, () if release == "0.15.0" else otherwise)
    moves = index.startswith("global")
    born_once = generator in ("complex", "timestamp", "custom") and not moves

    def again(count: int, **how: Any) -> list[Row]:
        """Rows of keys written before: their partition may change only where the index is global."""
        before = dict(source.born)
        rows = source.again(count, move=moves, **how)
        return [{**row, **_kept(before[row["id"]], generator, born_once)} for row in rows]

    # In this order: Hudi's bulk_insert into a bucket that is there makes a second file of it, which Hudi then refuses.
    twins.write("bulk_insert", source.new(15))
    twins.write("insert", source.new(25))
    twins.agree("bulk_insert and insert")
    twins.write("upsert", [*again(12), *source.new(6)])
    twins.agree("upsert")
    if generator not in ("timestamp", "custom"):
        twins.write("upsert", again(6, late=True))
        twins.agree("a late upsert")
    removed = list(source.born.values())[:5]
    twins.write("delete", source.forget(removed))
    twins.agree("delete")
    twins.write("insert_overwrite", source.new(4))
    twins.agree("insert_overwrite")
    if generator == "simple":
        drop = {"hoodie.datasource.write.partitions.to.delete": "no*,east"}
        twins.write("delete_partition", source.new(1), drop)
        twins.agree("delete_partition")
    twins.write("insert_overwrite_table", source.new(10))
    twins.write("upsert", source.new(5))
    twins.agree("insert_overwrite_table and upsert")


def _kept(born: Row, generator: str, born_once: bool) -> Row:
    """What makes the partition path, where it must not change."""
    if not born_once:
        return {}
    return {"ts": born["ts"]} if generator in ("timestamp", "custom") else {"seq": born["seq"]}


def options_of(release: str, version: int, kind: str, generator: str, index: str) -> Options:
    newer = {
        "hoodie.write.table.version": str(version),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.write.complex.keygen.validation.enable": "false",
        "hoodie.write.complex.keygen.new.encoding": "true",
    }
    return {
        "hoodie.table.name": "twin",
        "hoodie.datasource.write.table.type": kind,
        KEYS: "id",
        PARTS: "part",
        "hoodie.datasource.write.precombine.field": "ts",
        PAYLOAD: MODELS + "DefaultHoodieRecordPayload",
        "hoodie.metadata.enable": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.compact.inline": "false",
        "hoodie.embed.timeline.server": "false",
        **{f"hoodie.{each}.shuffle.parallelism": "2" for each in ("insert", "upsert", "bulkinsert", "delete")},
        **GENERATOR[generator],
        **INDEX[index],
        **(newer if release != "0.15.0" else {}),
    }
