"""One history by JVM Hudi and by skep: after each step their metadata tables hold the same records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from peer_byte_files import NOTHING, Difference, differing
from peer_byte_histories import COLUMNS, COW, MOR, Kept, Ours, Theirs, options_of
from peer_metadata_records import Named, Records
from peer_rows import Row, Source
from peer_shared import peer_marks

from benchmarks.peers.jvm import Jvm
from skep_format.options import Options
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable

pytestmark = pytest.mark.filterwarnings("ignore::skep_format.options.IneffectiveOptionWarning")

KEPT = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "3",
    # Hudi 1.0 refuses to roll back a commit that is older than a compaction of the metadata table.
    "hoodie.metadata.compact.max.delta.commits": "30",
    # Services of 0.15 fail where no payload class is named.
    "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
}


# Its partition statistics, which come with those of columns, fail at overwrites in tables of its own: a task opens a
# base file of the metadata table without its path (NullPointerException in HoodieAvroFileReaderFactory).
LACKING = {"1.2.0": {"hoodie.metadata.index.column.stats.enable": "false"}}


class Known(NamedTuple):
    """A difference that stays: patterns of the step, of the place and of skep's value, and the runs that show it."""

    step: str
    place: str
    why: str
    runs: str = ".*"
    ours: str = ".*"


KNOWN = (
    Known(
        ".*",
        r"records: partition_stats\.\w+ in (north|south|east)"
        r"\.((value|null)Count|(min|max)Value\.\w+\.value|isTightBound)",
        "both are wider than the files: skep adds what is new, Hudi has the rows of files that were replaced",
        r"1\.[01]\..*",
    ),
    Known(
        "clean|clustering|last upsert",
        r"records: column_stats\.\w+ of \.?(north|south) since .*(\.parquet|\.log\.\d+_token)\..*",
        "0.15 leaves the statistics of files that it cleans",
        r"0\..*",
        NOTHING,
    ),
)


class OursKept(Ours):
    """Of skep, whose services keep the metadata table."""

    def _open(self, **options: str) -> HudiTable:
        kept = {key: text for key, text in self.options.items() if ".metadata." in key}
        return self.hudi.with_context(options=Options({**kept, **options}))


def life(table: Kept, kind: str) -> Iterator[str]:
    """The history; yields the name of each step behind it."""
    source = Source("records", COLUMNS)

    def fresh(part: str, count: int) -> list[Row]:
        return [{**row, "part": part} for row in source.new(count)]

    first = fresh("north", 6) + fresh("south", 6)
    table.write("insert", first, source)
    source.born.update({row["id"]: row for row in first})
    yield "insert"
    table.write("upsert", source.again(8), source)
    yield "upsert"
    table.write("delete", source.forget(source.again(2)), source)
    yield "delete"
    if kind == MOR:
        table.compact()
        yield "compaction"
        table.write("upsert", source.again(4), source)
        yield "upsert behind it"
    table.write("insert_overwrite", fresh("south", 3), source)
    yield "overwrite"
    table.write("upsert", fresh("east", 2), source)
    yield "new partition"
    table.write("upsert", fresh("north", 2), source)
    yield "upsert to be rolled back"
    table.roll_back()
    yield "rollback"
    table.write("delete_partition", source.new(1), source, **{"hoodie.datasource.write.partitions.to.delete": "south"})
    yield "drop of a partition"
    table.clean()
    yield "clean"
    table.cluster()
    yield "clustering"
    table.write("upsert", fresh("north", 2), source)
    yield "last upsert"


QUICK = ("1.2.0", COW)
PEERS = [
    pytest.param(release, version, kind, id=f"{release}-{kind}", marks=peer_marks(release, sampled=case == QUICK))
    for release, version in (("0.15.0", 6), ("1.0.2", 8), ("1.1.1", 9), ("1.2.0", 9))
    for kind in (COW, MOR)
    for case in [(release, kind)]
]


@pytest.mark.parametrize(("release", "version", "kind"), PEERS)
def test_one_history_makes_the_same_records(
    release: str, version: int, kind: str, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    options = {**options_of(kind, version), **KEPT, **LACKING.get(release, {})}
    theirs = recorded(Theirs(tmp_path / "theirs", options, jvm=jvm(release)), kind)
    ours = recorded(OursKept(tmp_path / "ours", options), kind)
    assert list(ours) == list(theirs)
    found = [(step, each) for step in ours for each in differences(ours[step], theirs[step])]
    unknown = [
        f"after {step}, {each.place}: skep {each.ours}, Hudi {each.theirs}"
        for step, each in found
        if not any(matches(known, step, each, f"{release} {kind}") for known in KNOWN)
    ]
    assert not unknown, "\n".join(unknown)
    expected = [known for known in KNOWN if re.fullmatch(known.runs, f"{release} {kind}")]
    outdated = [
        known.place for known in expected if not any(matches(known, *each, f"{release} {kind}") for each in found)
    ]
    assert not outdated, f"no longer different: {outdated}"


def recorded(table: Kept, kind: str) -> dict[str, Records]:
    named, found = Named(), {}
    for step in life(table, kind):
        found[step] = named.records(table.hudi, step)
        checked = check_metadata_table(table.hudi)
        assert not checked.differences, f"{type(table).__name__} after {step}: {checked.differences}"
    return found


def differences(ours: Records, theirs: Records) -> list[Difference]:
    return list(differing("records", ours, theirs))


def matches(known: Known, step: str, found: Difference, run: str) -> bool:
    patterns = ((known.step, step), (known.place, found.place), (known.runs, run), (known.ours, found.ours))
    return all(re.fullmatch(pattern, text) for pattern, text in patterns)
