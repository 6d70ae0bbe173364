"""Options of the metadata table: its compaction by a trigger, what is kept, refused or without effect, and so named."""

from __future__ import annotations

from pathlib import Path

import pytest
from metadata_listings import assert_alike, frame, new_table, reopened, writer
from sleepy_clock import SleepyClock

from skep_format import options as registry
from skep_format.errors import OptionError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.options import IneffectiveOptionWarning, Options
from skep_format.table_config import TableType
from skep_format.versions import format_of_version
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, RECORD_INDEX
from skep_table.metadata_write.compaction.compact import is_compaction_due, last_compaction
from skep_table.metadata_write.making.spreading import RecordGroups
from skep_table.metadata_write.options import COMPACT_DELTA_SECONDS
from skep_table.metadata_write.own import open_own
from skep_table.services.metadata.indexing import indexes_of
from skep_table.services.metadata.upkeep import is_metadata_table_due, maintain_metadata_table
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

VERSIONS = pytest.mark.parametrize("table_version", [6, pytest.param(8, marks=pytest.mark.slow), 9], indirect=True)
TRIGGERS = ("NUM_COMMITS", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME")
SWITCHES = {
    COLUMN_STATS: "hoodie.metadata.index.column.stats.enable",
    BLOOM_FILTERS: "hoodie.metadata.index.bloom.filter.enable",
    RECORD_INDEX: "hoodie.metadata.record.index.enable",
}


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return new_table(tmp_path / "t", TableType.COPY_ON_WRITE)


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_warned", set())


# -- the trigger of its compaction -------------------------------------------------------------------------------------


def is_due(table: HudiTable, trigger: str, seconds: float) -> bool:
    """With three delta commits for a compaction, so long after now."""
    clock = SleepyClock()
    clock.sleep(seconds)
    options = {
        "hoodie.metadata.compact.trigger.strategy": trigger,
        "hoodie.metadata.compact.max.delta.commits": "3",
        "hoodie.metadata.compact.max.delta.seconds": "3600",
    }
    later = reopened(table, **options).with_context(clock=clock)
    assert is_metadata_table_due(later) is is_compaction_due(later, open_own(later))
    return is_metadata_table_due(later)


@VERSIONS
@pytest.mark.parametrize("compacted", [False, True], ids=["never", "once"])
def test_it_is_compacted_by_commits_by_time_by_both_or_by_either(table: HudiTable, compacted: bool) -> None:
    if compacted:
        writer(table).insert(frame(("a", "p", 0)))
        assert maintain_metadata_table(reopened(table, **{"hoodie.metadata.compact.max.delta.commits": "1"}))
    writer(table).upsert(frame(("a", "p", 1)))
    found = []
    for _ in ("few", "many"):
        found += [[is_due(table, trigger, seconds) for seconds in (0, 4000)] for trigger in TRIGGERS]
        for number in (2, 3):
            writer(table).upsert(frame(("a", "p", number)))
    few, many = found[:4], found[4:]
    assert few == [[False, False], [False, True], [False, False], [False, True]]
    assert many == [[True, True], [False, True], [False, True], [True, True]]


@VERSIONS
def test_a_compaction_by_time_is_carried_out_and_counts_from_there(table: HudiTable) -> None:
    options = {"hoodie.metadata.compact.trigger.strategy": "TIME_ELAPSED"}
    writer(table).insert(frame(("a", "p", 1)))
    assert maintain_metadata_table(reopened(table, **options)) is None
    soon = reopened(table, **options, **{COMPACT_DELTA_SECONDS.key: "0"})
    assert maintain_metadata_table(soon) is not None
    assert last_compaction(open_own(reopened(table))) is not None
    assert not is_metadata_table_due(reopened(table, **options, **{COMPACT_DELTA_SECONDS.key: "0"}))
    assert_alike(table)


# -- what is kept, refused, or without effect --------------------------------------------------------------------------


@pytest.mark.parametrize("partition", SWITCHES)
def test_an_index_that_a_writer_switches_off_is_kept_with_a_warning(
    table: HudiTable, partition: str, unwarned: None
) -> None:
    writer(table, **{SWITCHES[partition]: "true"}).insert(frame(("a", "p", 1)))
    writer(table, **{SWITCHES[partition]: "true"}).upsert(frame(("b", "p", 1)))
    assert partition in reopened(table).config.metadata_partitions
    with pytest.warns(IneffectiveOptionWarning, match=rf"=false has no effect: table t keeps the index {partition}"):
        writer(table, **{SWITCHES[partition]: "false"}).upsert(frame(("a", "p", 2)))
    assert partition in reopened(table).config.metadata_partitions
    writer(table, **{SWITCHES[partition]: "false"}).upsert(frame(("a", "p", 3)))  # warnings are errors here


def test_what_is_off_anyway_is_not_warned_of(table: HudiTable, unwarned: None) -> None:
    writer(table, **dict.fromkeys(SWITCHES.values(), "false")).insert(frame(("a", "p", 1)))
    assert reopened(table).config.metadata_partitions == ("files",)


@pytest.mark.parametrize(
    ("key", "value", "anyway"),
    [
        ("hoodie.metadata.table.service.manager.enabled", "true", "false"),
        ("hoodie.metadata.table.service.manager.actions", "compaction", ""),
        ("hoodie.metadata.write.concurrency.mode", "OPTIMISTIC_CONCURRENCY_CONTROL", "SINGLE_WRITER"),
        ("hoodie.metadata.index.expression.column", "part", ""),
        ("hoodie.expression.index.type", "BLOOM_FILTERS", "COLUMN_STATS"),
        ("hoodie.metadata.index.expression.options", "expr=upper", ""),
    ],
)
def test_what_is_not_built_is_refused_by_name_with_the_reason(key: str, value: str, anyway: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"option {key} is known but not supported yet: \w+"):
        Options({key: value}).check()
    Options({key: anyway}).check()


def test_internal_options_of_hudi_are_not_ignored_either(unwarned: None) -> None:
    with pytest.warns(IneffectiveOptionWarning, match="_hoodie.metadata.ignore.spurious.deletes has no effect"):
        Options({"_hoodie.metadata.ignore.spurious.deletes": "false"}).check()
    with pytest.warns(registry.UnknownOptionWarning, match="unknown option _hoodie.metadata.nothing"):
        Options({"_hoodie.metadata.nothing": "false"}).check()


def test_a_partitioned_record_index_is_sized_by_either_name() -> None:
    by_former = Options(
        {
            "hoodie.metadata.partitioned.record.index.min.filegroup.count": "3",
            "hoodie.metadata.partitioned.record.index.max.filegroup.count": "4",
        }
    )
    groups = RecordGroups.of(by_former, partitioned=True)
    assert (groups.least, groups.most) == (3, 4)


@pytest.mark.parametrize(
    ("version", "time", "makes_a_partition"),
    [
        (6, "00000000000000010", True),
        (6, "20260101000000123", False),  # of a write, with its milliseconds
        (6, "20260101000000123010", True),
        (6, "20260101000000123004", True),
        (6, "20260101000000123001", False),  # a compaction
        (9, "00000000000000001", True),
        (9, "20260101000000123", False),
    ],
)
def test_which_delta_commits_make_a_partition(version: int, time: str, makes_a_partition: bool) -> None:
    assert format_of_version(version).metadata.is_first(InstantTime(time)) is makes_a_partition


@VERSIONS
def test_columns_that_can_not_have_statistics_are_named(table: HudiTable, unwarned: None) -> None:
    columns = "hoodie.metadata.index.column.stats.column.list"
    options = {SWITCHES[COLUMN_STATS]: "true", columns: "ts,tss,part"}
    writer(table).insert(frame(("a", "p", 1)))
    with pytest.warns(IneffectiveOptionWarning, match=rf"option {columns}: table t has no column tss that can"):
        writer(table, **options).upsert(frame(("a", "p", 2)))
    metadata = reopened(table).metadata_table()
    assert metadata is not None
    assert [metadata.has_statistics(name) for name in ("ts", "part", "id", "tss")] == [True, True, False, False]


# -- a secondary index of a writer's options ---------------------------------------------------------------------------

SECONDARY = "hoodie.metadata.index.secondary.column"


@pytest.mark.parametrize("table_version", [8, 9], indirect=True)
@pytest.mark.parametrize("first", [False, True], ids=["later", "with the first write"])
def test_a_writers_options_make_a_secondary_index(table: HudiTable, first: bool) -> None:
    options = {SECONDARY: "ts", "hoodie.index.name": "by_ts"}
    for number in range(0 if first else 3):
        writer(table).insert(frame((f"k{number}", "p", number)))
    for number in range(3, 6):
        writer(table, **options).upsert(frame((f"k{number}", "q", number), ("k0", "p", 10 * number)))
        found = check_metadata_table(reopened(table))
        assert not found.differences, found.differences
    assert [(each.name, each.columns) for each in indexes_of(reopened(table)) if each.kind == "secondary_index"] == [
        ("by_ts", ("ts",))
    ]
    assert "secondary_index_by_ts" in [each.partition for each in found.partitions]
    writer(table, **{SECONDARY: "ts"}).upsert(frame(("k0", "p", 99)))  # of that column there is one
    assert len(indexes_of(reopened(table))) == 2


@pytest.mark.parametrize(
    ("table_version", "column", "more"),
    [
        (6, "ts", {}),
        (9, "nothing", {}),
        (9, "ts", {"hoodie.metadata.record.level.index.enable": "true"}),
    ],
    indirect=["table_version"],
)
def test_a_secondary_index_that_the_table_can_not_have_is_refused(
    table: HudiTable, column: str, more: dict[str, str]
) -> None:
    writer(table).insert(frame(("a", "p", 1)))
    before = reopened(table).timeline.instants
    with pytest.raises(OptionError, match=rf"option {SECONDARY}: .* can't have the index .*_{column}"):
        writer(table, **{SECONDARY: column}, **more).upsert(frame(("a", "p", 2)))
    assert reopened(table).timeline.instants == before


@pytest.mark.parametrize("key", [*SWITCHES.values(), SECONDARY])
def test_an_index_that_is_not_made_without_a_metadata_table_is_a_warning(
    table: HudiTable, key: str, unwarned: None
) -> None:
    """By Hudi's default there is one."""
    alone = LocalWriter(HudiTable.open(table.storage, {key: "ts" if key == SECONDARY else "true"}))
    with pytest.warns(IneffectiveOptionWarning, match=r"option .* has no effect without hoodie\.metadata\.enable=true"):
        alone.insert(frame(("a", "p", 1)))
    assert not reopened(table).config.metadata_partitions


def test_a_name_alone_makes_no_index(table: HudiTable, unwarned: None) -> None:
    with pytest.warns(IneffectiveOptionWarning, match=f"hoodie.index.name has no effect without {SECONDARY}"):
        writer(table, **{"hoodie.index.name": "by_ts"}).insert(frame(("a", "p", 1)))
