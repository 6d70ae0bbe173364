"""One history by JVM Hudi and by skep, in tables of versions 8 and 9: the files of the two tables are compared.

Of every instant file the Avro schema and each member of its record, of log files the headers of each block, of the
table its settings and what else lies in its folders. Names, times and sizes that any two runs differ in are put aside;
every other difference is in DIFFERENCES, with its reason.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from peer_arrow import arrow_table
from peer_rows import Columns, Row, Source, decimal, integer, word
from peer_shared import peer_marks

import skep
from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_table.logfile import read_blocks
from skep_table.options import Options
from skep_table.properties import parse_properties
from skep_table.services.clean import clean
from skep_table.services.cluster import execute_pending_clusterings, schedule_clustering
from skep_table.services.compact import execute_pending_compactions, schedule_compaction
from skep_table.services.rollback import roll_back_instant
from skep_table.services.savepoint import create_savepoint
from skep_table.table import HudiTable

Start = Callable[[str], Jvm]
# Without lists: 1.0.2 can't rewrite those that its own bulk_insert wrote.
COLUMNS = Columns({"n": ("int", integer(32)), "amount": ("decimal(10,2)", decimal(10, 2)), "note": ("string", word)})
COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
ONE_COMMIT = {"hoodie.clean.commits.retained": "1", "hoodie.cleaner.commits.retained": "1"}
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}

# Where (`instant <state>.<action>: <member>`, `log: …`, `hoodie.properties: …`, `folder: …`) → why they differ.
DIFFERENCES: dict[str, str] = {
    # sizes and durations
    r".*\.(totalWriteBytes|fileSizeInBytes|totalLogSizeCompacted)": "bytes: another writer's encodings",
    r".*\.TOTAL_(LOG_FILES_SIZE|IO_READ_MB|IO_WRITE_MB|IO_MB)": "bytes, as above",
    r".*\.runtimeStats.*": "milliseconds of the phases of a task, which skep does not have",
    r".*\.(timeTakenInMillis|totalTimeTakenInMillis|totalLogReadTimeMs)": "how long it took",
    r"instant savepoint: record\.savepointedAt": "when it was made",
    # settings
    r"hoodie\.properties: hoodie\.database\.name": "skep states that there is none",
    r"hoodie\.properties: hoodie\.table\.timeline\.timezone": "of Hudi's Spark writer it is LOCAL",
    r"hoodie\.properties: hoodie\.table\.create\.schema": "the same columns; names of decimals' types differ",
    # folders that one of them makes ahead of time
    r"folder: \.hoodie/\.(heartbeat|schema|aux/\.bootstrap/\.(fileids|partitions))/": "empty folders",
    r"folder: \.hoodie/timeline/history/(\.keep)?": "skep keeps the folder by a file: object stores have no empty ones",
    # cleaning
    r"instant clean\.requested: record\.filePathsToBeDeletedPerPartition.*": "older files of groups that a"
    " clustering replaced are deleted here, too",
    r"instant clean\.requested: record\.partitionsToBeDeleted": "of a dropped partition the folder stays",
    r"instant clean: record\.(totalFilesDeleted|partitionMetadata.*)": "as planned",
    r"folder: south/\.hoodie_partition_metadata": "of the dropped partition, as above",
    # what is announced
    r"instant (delta|replace)?(commit\.)?inflight": "of a bulk insert Hudi announces no files",
    r"instant (delta|replace)?(commit\.)?inflight: record\.partitionToWriteStats\..*": "Hudi has one of no new keys",
    r"instant replacecommit\.requested: record\.(operationType|extraMetadata|version)": "of a delete of partitions:"
    " its operation is in the inflight and completed file",
    r"instant compaction\.requested: record\.extraMetadata.*": "what skep's plan has seen, for its next plan",
    r"instant compaction\.requested: record\.missingSchedulePartitions": "null and an empty list mean the same",
}


@dataclass
class Kept:
    """A table with one writer."""

    path: Path
    options: dict[str, str]

    def write(self, operation: str, rows: list[Row], source: Source, **more: str) -> None:
        raise NotImplementedError

    def compact(self) -> None:
        raise NotImplementedError

    def cluster(self) -> None:
        raise NotImplementedError

    def clean(self) -> None:
        raise NotImplementedError

    def save(self) -> None:
        raise NotImplementedError

    def roll_back(self) -> None:
        raise NotImplementedError

    @property
    def hudi(self) -> HudiTable:
        return HudiTable.open(str(self.path))

    def newest(self) -> str:
        last = self.hudi.timeline.data().completed().last()
        assert last is not None
        return last.requested_time


class Ours(Kept):
    """Of skep."""

    def write(self, operation: str, rows: list[Row], source: Source, **more: str) -> None:
        options = {**self.options, **more, "hoodie.datasource.write.operation": operation}
        frame = arrow_table(rows, source.ddl())
        skep.write(frame).format("hudi").options(**options).mode("append").save(self.path)

    def _open(self, **options: str) -> HudiTable:
        return self.hudi.with_context(options=Options(options))

    def compact(self) -> None:
        assert schedule_compaction(self._open()) is not None
        execute_pending_compactions(self._open())

    def cluster(self) -> None:
        assert schedule_clustering(self._open(**CLUSTERING)) is not None
        execute_pending_clusterings(self._open())

    def clean(self) -> None:
        assert clean(self._open(**ONE_COMMIT))

    def save(self) -> None:
        create_savepoint(self._open(), user="user", comments="why")

    def roll_back(self) -> None:
        roll_back_instant(self._open(), self.newest())


CLUSTERING = {
    "hoodie.clustering.plan.strategy.sort.columns": "ts,id",
    "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true",
}


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

    def compact(self) -> None:
        self._call("run_compaction", "op => 'schedule'", **EVERY_LOG)
        self._call("run_compaction", "op => 'run'", **EVERY_LOG)

    def cluster(self) -> None:
        self._call("run_clustering", "op => 'schedule', order => 'ts,id'", **CLUSTERING)
        self._call("run_clustering", "op => 'execute'", **CLUSTERING)

    def clean(self) -> None:
        self._service(["clean"], **ONE_COMMIT)

    def save(self) -> None:
        self._service(["savepoint", self.newest(), "user", "why"])

    def roll_back(self) -> None:
        self._service(["rollback", self.newest()])


def life(table: Kept, kind: str) -> None:
    """Every action that a writer of a table comes to."""
    source = Source("bytes", COLUMNS)
    first = [{**row, "part": part} for part in ("north", "south") for row in source.new(6)]
    table.write("bulk_insert", first, source)
    for row in first:
        source.born[row["id"]] = row
    table.write("upsert", source.again(8), source)
    table.write("delete", source.forget(source.again(2)), source)
    if kind == MOR:
        table.compact()
        table.write("upsert", source.again(4), source)
    table.write("insert_overwrite", [{**row, "part": "south"} for row in source.new(3)], source)
    table.write("delete_partition", source.new(1), source, **{"hoodie.datasource.write.partitions.to.delete": "south"})
    table.write("upsert", [{**row, "part": "north"} for row in source.new(2)], source)
    table.save()
    table.write("upsert", [{**row, "part": "north"} for row in source.new(2)], source)
    table.roll_back()
    table.cluster()
    table.clean()


PEERS = [("1.1.1", 9), ("1.0.2", 8)]


@pytest.mark.filterwarnings("ignore::skep_table.options.IneffectiveOptionWarning")
@pytest.mark.parametrize("kind", [COW, MOR])
@pytest.mark.parametrize(
    ("release", "version"), [pytest.param(*each, marks=peer_marks(each[0], sampled=False)) for each in PEERS]
)
def test_one_history_makes_the_same_files(release: str, version: int, kind: str, jvm: Start, tmp_path: Path) -> None:
    options = options_of(kind, version)
    ours = Ours(tmp_path / "ours" / "t", options)
    theirs = Theirs(tmp_path / "theirs" / "t", options, jvm=jvm(release))
    for table in (theirs, ours):
        life(table, kind)
    assert not difference(
        theirs.jvm.read(ours.path).rows,
        theirs.jvm.read(theirs.path).rows,
        without=("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"),
    )
    found = list(compared(ours.path, theirs.path))
    unknown = [line for place, line in found if not any(re.fullmatch(known, place) for known in DIFFERENCES)]
    assert not unknown, "\n".join(unknown)


def options_of(kind: str, version: int) -> dict[str, str]:
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
        "hoodie.compact.inline": "false",
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.embed.timeline.server": "false",
        **{f"hoodie.{each}.shuffle.parallelism": "1" for each in ("insert", "upsert", "bulkinsert", "delete")},
    }


# -- comparison --------------------------------------------------------------------------------------------------------

Found = Iterator[tuple[str, str]]


def compared(ours: Path, theirs: Path) -> Found:
    """(place, text) for each difference."""
    yield from differing("hoodie.properties", properties(ours), properties(theirs))
    yield from differing("folder", folders(ours), folders(theirs))
    mine, others = instants(ours), instants(theirs)
    yield from differing("instants", [place for place, _ in mine], [place for place, _ in others])
    theirs_at = dict(others)
    for place, data in mine:
        if place in theirs_at:
            yield from differing(f"instant {place.partition(' ')[2]}", data, theirs_at[place])
    yield from differing("log", logs(ours), logs(theirs))


def properties(table: Path) -> dict[str, str]:
    return parse_properties((table / ".hoodie/hoodie.properties").read_bytes(), "")


def folders(table: Path) -> dict[str, int]:
    """Files that are neither data nor instants, and empty folders; Hadoop's checksums aside."""
    found: Counter[str] = Counter()
    for path in sorted(table.rglob("*")):
        if path.is_dir() and not any(path.iterdir()):
            found[f"{path.relative_to(table)}/"] += 1
        elif (
            path.is_file() and not path.name.endswith(".crc") and not re.match(r"\.?[\w-]+_.*\d{17}|\d{17}", path.name)
        ):
            found[str(path.relative_to(table))] += 1
    return dict(found)


def instants(table: Path) -> list[tuple[str, Any]]:
    """(`<number> <action and state>`, content) of all instant files, in the order of requests."""
    times: dict[str, str] = {}
    files = sorted((table / ".hoodie/timeline").glob("2*"))
    for file in files:
        for time in re.findall(r"\d{17}", file.name):
            times.setdefault(time, "")
    for number, time in enumerate(sorted(times)):
        times[time] = f"<{number}>"
    requested = sorted({file.name[:17] for file in files})
    return [
        (f"{requested.index(file.name[:17]):02} {file.name.partition('.')[2]}", content(file.read_bytes(), times))
        for file in files
        if not file.name.endswith(".crc")
    ]


def content(data: bytes, times: dict[str, str]) -> Any:
    if not data:
        return "empty"
    reader = fastavro.reader(io.BytesIO(data))
    schema = json.loads(reader.metadata["avro.schema"])
    (record,) = reader
    return {
        "schema": json.dumps(meaning(schema), sort_keys=True),
        "codec": reader.codec,
        "record": plain(record, times),
    }


def meaning(schema: Any) -> Any:
    """An Avro schema without what readers of files do not use: texts, and where a name's namespace is stated."""
    match schema:
        case list():
            return [meaning(branch) for branch in schema]
        case {"fields": fields}:
            members = [{**member, "type": meaning(member["type"]), "doc": None} for member in fields]
            return {"name": schema["name"], "fields": members}
        case dict():
            return {key: meaning(value) for key, value in schema.items() if key not in ("doc", "default", "namespace")}
    return schema.removeprefix("org.apache.hudi.avro.model.") if isinstance(schema, str) else schema


FILE_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-\d+")
TOKEN = re.compile(r"_\d+-\d+-\d+")


def plain(value: Any, times: dict[str, str]) -> Any:
    """Without what names a run: file ids, write tokens, times."""
    match value:
        case dict():
            return {text_of(str(key), times): plain(item, times) for key, item in value.items()}
        case list() | tuple():
            return sorted((plain(item, times) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
        case str():
            return text_of(value, times)
        case bytes():
            return value.hex()
    return value


def text_of(text: str, times: dict[str, str]) -> str:
    if text.startswith("{") and "fields" in text:
        return json.dumps(json.loads(text), sort_keys=True)
    text = TOKEN.sub("_<token>", FILE_ID.sub("<file>", text))
    text = re.sub(r"(file:)?/\S*?/(ours|theirs)/t", "<table>", text)
    return re.sub(r"\d{17}", lambda found: times.get(found[0], "<time>"), text)


def logs(table: Path) -> list[Any]:
    """The headers of the blocks of each log file, in the order of commits."""
    found = []
    for path in sorted(table.rglob(".*.log.*"), key=lambda path: (path.name.rpartition("_20")[2], path.parent.name)):
        if path.name.endswith(".crc"):
            continue
        with pa.OSFile(str(path)) as file:
            for block in read_blocks(file, str(path), path.stat().st_size):
                headers = {key.name: plain(value, {}) for key, value in block.headers.items()}
                found.append({"partition": path.parent.name, "type": block.type.name, "headers": headers})
    return found


def differing(place: str, ours: Any, theirs: Any) -> Found:
    """Member by member."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys((*ours, *theirs)):
            yield from differing(
                f"{place}: {key}" if ":" not in place else f"{place}.{key}",
                ours.get(key, NOTHING),
                theirs.get(key, NOTHING),
            )
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for mine, other in zip(ours, theirs, strict=True):
            yield from differing(place, mine, other)
    elif isinstance(ours, list) and isinstance(theirs, list):
        mine, others = (Counter(json.dumps(item, sort_keys=True) for item in items) for items in (ours, theirs))
        yield from ((place, f"{place}: only skep has {item[:300]}") for item in (mine - others).elements())
        yield from ((place, f"{place}: only Hudi has {item[:300]}") for item in (others - mine).elements())
    elif ours != theirs or type(ours) is not type(theirs):
        yield place, f"{place}: skep {json.dumps(ours)[:300]}, Hudi {json.dumps(theirs)[:300]}"


NOTHING = "no such member"
