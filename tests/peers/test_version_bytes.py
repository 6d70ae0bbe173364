"""One history by JVM Hudi and by skep, in tables of versions 8 and 9: the files of the two tables are compared.

At three points of the history, with the archive's last: of every instant file, on the timeline and in the archive, the
Avro schema and each member of its record; of the archive its manifests, the names, schemas and rows of its files; of
log files the kind, the headers and the number of rows of each block; of the table its settings, and what else lies in
its folders. What the two differ in is in DIFFERENCES: each line is one member, with both values and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from peer_byte_files import NOTHING, Difference, compared
from peer_byte_histories import (
    COW,
    MOR,
    PARTS,
    RESTORED,
    STATIONS,
    Ours,
    Theirs,
    life,
    life_restored,
    life_with_parts,
    options_of,
)
from peer_shared import peer_marks

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference

pytestmark = pytest.mark.filterwarnings("ignore::skep_format.options.IneffectiveOptionWarning")

Start = Callable[[str], Jvm]
COUNT, SIZE = r"\d+", r"\d+\.0"
PARTITION = r'"\{\\"commitTime\\": \\"<\d+>\\", \\"partitionDepth\\": \\"1\\"\}"'


class Known(NamedTuple):
    """A difference that stays: patterns of its place and of both values, and of the runs that show it."""

    place: str
    ours: str
    theirs: str
    why: str
    runs: str = r"\S+ \S+"


PART = "(north|south|east)"
STAT = rf"instant .*commit: record\.partitionToWriteStats\.{PART}"
ON_LOGS = rf"\S+ {MOR}"
FILE, EMPTY = '"a file"', '"empty"'

DIFFERENCES = (
    # bytes and milliseconds
    Known(rf"{STAT}\.(fileSizeInBytes|totalWriteBytes)", COUNT, COUNT, "another writer's bytes"),
    Known(rf"{STAT}\.totalLogSizeCompacted", COUNT, COUNT, "the same of logs", ON_LOGS),
    Known(
        r"instant (log)?compaction\.requested: record\.operations\.metrics\.TOTAL_LOG_FILES_SIZE",
        SIZE,
        SIZE,
        "the same of logs",
        ON_LOGS,
    ),
    Known(
        r"instant clustering\.requested: record\.clusteringPlan\.inputGroups\.metrics\.TOTAL_LOG_FILES_SIZE",
        SIZE,
        SIZE,
        "the same of logs",
        ON_LOGS,
    ),
    Known(
        r"instant clustering\.requested: record\.clusteringPlan\.inputGroups\.metrics\.TOTAL_IO_(READ_|WRITE_)?MB",
        SIZE,
        SIZE,
        "the same of base files: an empty bloom filter takes Hudi 430 KB",
    ),
    Known(
        r"instant (clean|rollback|restore): record\.(hoodieRestoreMetadata\.<\d+>\.)?timeTakenInMillis",
        COUNT,
        COUNT,
        "how long it took",
    ),
    Known(rf"{STAT}\.totalLogReadTimeMs", COUNT, COUNT, "how long it took", ON_LOGS),
    Known(r"instant savepoint: record\.savepointedAt", COUNT, COUNT, "when it was made"),
    Known(
        rf"{STAT}\.runtimeStats\.total(Scan|Create|Upsert)Time",
        NOTHING,
        COUNT,
        "milliseconds of the phases of Hudi's tasks",
    ),
    # settings
    Known(
        r"hoodie\.properties: hoodie\.table\.timeline\.timezone",
        '"UTC"',
        '"LOCAL"',
        "Hudi's Spark writer has the zone of its machine; a reader takes what is stated",
    ),
    Known(
        r"hoodie\.properties: hoodie\.table\.create\.schema",
        r'"\{\\"type\\":\\"record\\".*\}"',
        NOTHING,
        "Hudi states it for tables that SQL created; with it a table without a commit can be read",
    ),
    # folders
    Known(r"folder: \.hoodie/\.(schema|aux/\.bootstrap/\.(fileids|partitions))/", NOTHING, EMPTY, "made when needed"),
    Known(r"folder: \.hoodie/\.heartbeat/", EMPTY, NOTHING, "each writer of skep has a heartbeat"),
    Known(r"folder: \.hoodie/timeline/history/", NOTHING, EMPTY, "object stores have no empty folders"),
    Known(r"folder: \.hoodie/timeline/history/\.keep", FILE, NOTHING, "as before: it keeps the folder"),
    # plans
    Known(
        r"instant (compaction|logcompaction)\.requested: record\.extraMetadata\.skep\.plan\.coverage",
        r'"\{\\"until\\": .*\}"',
        NOTHING,
        "what the plan has seen: the next plan lists only other partitions",
        ON_LOGS,
    ),
    Known(
        r"instant clustering\.requested: record\.extraMetadata\.skep\.plan\.coverage",
        r'"\{\\"until\\": .*\}"',
        NOTHING,
        "as for compactions",
    ),
    # a dropped partition: the folder stays, as another writer may have started a file in it; Hudi deletes such a file
    Known(r"instant clean\.requested: record\.partitionsToBeDeleted", NOTHING, '"south"', "the folder is not planned"),
    Known(r"instant clean: record\.partitionMetadata\.south\.isPartitionDeleted", "false", "true", "nor deleted"),
    Known(r"folder: south/\.hoodie_partition_metadata", PARTITION, NOTHING, "so it is there"),
    Known(r"folder: south/\.hoodie_partition_metadata", PARTITION, PARTITION, "and not made a second time", ON_LOGS),
    # cleans and rollbacks are archived by their own number, so that many of them do not slow down listings
    Known(r"timeline (clean|rollback)(\.requested|\.inflight)?", FILE, NOTHING, "still active"),
    Known(
        r"history row of (clean|rollback): (action|instantTime|completionTime|version|metadata|plan)",
        NOTHING,
        r'"(clean|rollback|<\d+>|org\.apache\.hudi\.avro\.model\.Hoodie\w+)"|1|null',
        "not archived yet",
    ),
    # a partial update, by the statement MERGE INTO
    Known(
        r"instant deltacommit(\.inflight)?: record\.operationType",
        '"UPSERT_PREPPED"',
        '"UPSERT"',
        "skep writes to where it has read the rows; Hudi looks up their keys again",
        rf".* {PARTS}",
    ),
    Known(
        r"instant deltacommit: record\.extraMetadata\._hoodie\.spark\.sql\.merge\.into\.prepped",
        NOTHING,
        '"false"',
        "a setting of that look-up",
        rf".* {PARTS}",
    ),
    Known(
        r"instant deltacommit: record\.extraMetadata\.schema",
        r'.*\\"name\\": \\"part\\".*\\"name\\": \\"n\\".*',
        r'.*\\"name\\": \\"n\\".*\\"name\\": \\"part\\".*',
        "Spark's catalog has partition columns last",
        rf".* {PARTS}",
    ),
    Known(
        r"hoodie\.properties: hoodie\.database\.name",
        NOTHING,
        '"default"',
        "in 1.0 CREATE TABLE at a table's location changes its settings",
        rf"1\.0\.2 .* {PARTS}",
    ),
    Known(
        r"hoodie\.properties: hoodie\.table\.checksum",
        r'"\d+"',
        r'"\d+"',
        "of the name with the database",
        rf"1\.0\.2 .* {PARTS}",
    ),
    Known(
        r"hoodie\.properties: hoodie\.table\.create\.schema",
        r'"\{\\"type\\":\\"record\\",\\"name\\":\\"t_record\\".*',
        r'"\{\\"type\\":\\"record\\",\\"name\\":\\"parts_record\\".*',
        "of that statement",
        rf"1\.0\.2 .* {PARTS}",
    ),
    # of one release
    Known(
        r"hoodie\.properties: hoodie\.table\.partition_extractor_class",
        NOTHING,
        r'"org\.apache\.hudi\.hive\.SinglePartPartitionValueExtractor"',
        "1.2 states what a Hive sync infers from the other settings",
        r"1\.2\.0 \S+",
    ),
    Known(
        r"log (AVRO_DATA|DELETE): headers\.COMPACTED_BLOCK_TIMES",
        '"<06>,<04>,<02>"',
        '"<02>,<04>,<06>"',
        "newest first up to 1.1; no reader depends on the order",
        rf"1\.2\.0 {MOR}",
    ),
    Known(
        rf"instant commit: record\.partitionToWriteStats\.{PART}\.totalLogRecords",
        COUNT,
        COUNT,
        "of a compaction: 1.2 and skep do not read the blocks that a log compaction has replaced",
        rf"1\.(0\.2|1\.1) {MOR}",
    ),
    Known(
        rf"instant commit: record\.partitionToWriteStats\.{PART}\.(min|max)EventTime",
        "null",
        COUNT,
        "1.0 states times of any column named ts; from 1.1 on it is an option",
        rf"1\.0\.2 {COW}",
    ),
    Known(
        r"instant replacecommit\.requested: record\.(extraMetadata|operationType|version)",
        r'\{\}|"DELETE_PARTITION"|1',
        "null",
        "of a drop of partitions: from 1.1 on as here",
        r"1\.0\.2 \S+",
    ),
    Known(
        rf"instant commit: record\.partitionToWriteStats\.{PART}\.numInserts",
        "0",
        COUNT,
        "of a compaction: 1.0 counts the rows that it copied, too",
        rf"1\.0\.2 {MOR}",
    ),
    Known(
        rf"instant deltacommit: record\.partitionToWriteStats\.{PART}\.prevCommit",
        '"<00>"',
        '"<08>"',
        "of a log compaction: in 1.0 its own time, from 1.1 on that of the base file",
        rf"1\.0\.2 {MOR}",
    ),
    Known(
        rf"instant deltacommit: record\.partitionToWriteStats\.{PART}\.totalLogRecords",
        "7",
        "6",
        "of a log compaction: 1.0 does not count the entries of delete blocks",
        rf"1\.0\.2 {MOR}",
    ),
)

PEERS = [("1.2.0", 9), ("1.1.1", 9), ("1.0.2", 8)]
releases = pytest.mark.parametrize(
    ("release", "version"), [pytest.param(*each, marks=peer_marks(each[0], sampled=False)) for each in PEERS]
)


@releases
@pytest.mark.parametrize("kind", [COW, MOR])
def test_one_history_makes_the_same_files(release: str, version: int, kind: str, jvm: Start, tmp_path: Path) -> None:
    ours, theirs = both(options_of(kind, version), jvm(release), tmp_path)
    for table in (theirs, ours):
        life(table, kind)
    check(ours, theirs, STATIONS, f"{release} {kind}")


@releases
def test_partial_updates_make_the_same_files(release: str, version: int, jvm: Start, tmp_path: Path) -> None:
    ours, theirs = both(options_of(MOR, version), jvm(release), tmp_path)
    for table in (theirs, ours):
        life_with_parts(table)
    check(ours, theirs, [PARTS], f"{release} {MOR} {PARTS}")


@releases
@pytest.mark.parametrize("kind", [COW, MOR])
def test_a_restore_makes_the_same_files(release: str, version: int, kind: str, jvm: Start, tmp_path: Path) -> None:
    ours, theirs = both(options_of(kind, version), jvm(release), tmp_path)
    for table in (theirs, ours):
        life_restored(table)
    check(ours, theirs, [f"before {RESTORED}", RESTORED], f"{release} {kind} {RESTORED}")


def both(options: dict[str, str], hudi: Jvm, folder: Path) -> tuple[Ours, Theirs]:
    return Ours(folder / "ours", options), Theirs(folder / "theirs", options, jvm=hudi)


def check(ours: Ours, theirs: Theirs, stations: Sequence[str], run: str) -> None:
    """The rows are the same, each difference of the files is listed, and each that is listed for this run is there."""
    assert not difference(
        theirs.jvm.read(ours.path).rows,
        theirs.jvm.read(theirs.path).rows,
        without=("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"),
    )
    found = {
        each: f"{station}, {each.place}: skep {each.ours}, Hudi {each.theirs}"
        for station in stations
        for each in compared(ours.folder / station, theirs.folder / station)
    }
    unknown = [text for each, text in found.items() if not any(matches(known, each) for known in DIFFERENCES)]
    assert not unknown, "\n".join(unknown)
    expected = [known for known in DIFFERENCES if re.fullmatch(known.runs, run)]
    outdated = [known.place for known in expected if not any(matches(known, each) for each in found)]
    assert not outdated, f"no longer different, or not in this run: {outdated}"


def matches(known: Known, found: Difference) -> bool:
    return all(re.fullmatch(getattr(known, name), getattr(found, name)) for name in found._fields)


def test_no_known_difference_hides_a_structure() -> None:
    """Each ends with the names of members, and none is of any value."""
    for known in DIFFERENCES:
        assert not known.place.endswith("*"), known.place
        assert not re.fullmatch(known.ours, "any"), known.place
        assert not re.fullmatch(known.theirs, "any"), known.place
