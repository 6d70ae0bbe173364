"""Indexes over expressions: made of what is there, and kept by every action on the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runs_first import RunsFirst

from skep_format.errors import InputError, MetadataTableError, SchemaError, UnsupportedError
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant, State
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.parts import participants
from skep_table.commit.parts.metadata_table import drop_overtaken
from skep_table.metadata_table.definitions import INDEX_DEFINITIONS
from skep_table.metadata_table.partitions import BLOOM_MEMBER, FILES, STATS_MEMBER
from skep_table.query import ReadRequest, read
from skep_table.query.read import explain
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.services.metadata.indexing import build_index, drop_index, index_named, indexes_of
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import create_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
OPTIONS = {"hoodie.metadata.enable": "true"}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("part", pa.string()),
    ]
)
INDEXES = [
    index_named("column_stats", "by_day", ["ts"], {"expr": "from_unixtime", "format": "yyyy-MM-dd"}),
    index_named("column_stats", "big", ["name"], {"expr": "UPPER"}),
    index_named("column_stats", "years", ["at"], {"expr": "year"}),
    index_named("bloom_filters", "small", ["name"], {"expr": "lower", "numentries": "100", "fpp": "0.001"}),
]
DAY = 86_400
FIRST = 1_704_067_200  # 2024-01-01


def rows(*numbers: int, day: int = 0, part: str | None = None) -> pa.Table:
    def row(number: int) -> dict[str, Any]:
        return {
            "id": f"k{number}",
            "ts": FIRST + (number + day) * DAY,
            "name": None if number % 5 == 4 else f"Né{number}",
            "at": (FIRST + number * 100 * DAY) * 10**6,
            "part": part or f"p{number % 3}",
        }

    return pa.Table.from_pylist([row(number) for number in numbers], SCHEMA)


@pytest.fixture(
    params=[
        pytest.param((8, MOR), id="8-mor", marks=pytest.mark.slow),
        pytest.param((9, COW), id="9-cow", marks=pytest.mark.slow),
        pytest.param((9, MOR), id="9-mor"),
    ]
)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    """With rows in three partitions and the indexes."""
    version, kind = request.param
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind, version=version
    )
    made = create_table(LocalStorage(str(tmp_path / "t")), spec, OPTIONS)
    LocalWriter(made.reload().with_options(OPTIONS)).upsert(rows(*range(12)))
    for index in INDEXES:
        made = build_index(made.reload().with_options(OPTIONS), index)
    return made


def now(table: HudiTable, **options: str) -> HudiTable:
    return table.reload().with_options({**OPTIONS, **options})


def checked(table: HudiTable) -> None:
    """All indexes are there, and state what the files hold."""
    fresh = now(table)
    assert {index.name for index in INDEXES} < set(fresh.config.metadata_partitions)
    found = check_metadata_table(fresh)
    assert not found.differences
    assert not found.skipped
    assert all(part.checked for part in found.partitions)


def ids(table: HudiTable, where: str, **options: Any) -> list[str]:
    found = read(now(table), ReadRequest(where=where, **options)).to_arrow()
    return sorted(found["id"].to_pylist())


FILTERS = [
    "from_unixtime(ts, 'yyyy-MM-dd') = '2024-01-04'",
    "from_unixtime(ts, 'yyyy-MM-dd') > '2024-01-09'",
    "from_unixtime(ts, 'yyyy-MM-dd') LIKE '2024-01-1%'",
    "upper(name) IN ('NÉ3', 'NÉ11', 'nobody')",
    "upper(name) IS NULL",
    "lower(name) = 'né7'",
    "year(at) < 2025",
    "year(at) = 2026 AND lower(name) = 'né8'",
]


def answers_alike(table: HudiTable, filters: Sequence[str] = FILTERS) -> None:
    for where in filters:
        assert ids(table, where) == ids(table, where, metadata=False, data_skipping=False), where


def test_each_action_keeps_them(table: HudiTable) -> None:
    done = count()

    def step(do: Callable[[], object]) -> None:
        do()
        checked(table)
        answers_alike(table, FILTERS[next(done) % 3 :: 3])

    step(lambda: LocalWriter(now(table)).upsert(rows(1, 2, 3, 20, day=40)))
    step(lambda: LocalWriter(now(table)).insert(rows(30, 31, part="new")))
    step(lambda: LocalWriter(now(table)).delete(rows(4, 5)))
    if table.config.is_mor:
        step(lambda: compact(now(table)))
    step(lambda: LocalWriter(now(table)).upsert(rows(6, 7, day=50)))
    step(lambda: cluster(now(table, **{"hoodie.clustering.plan.strategy.sort.columns": "ts"})))
    step(lambda: LocalWriter(now(table)).insert_overwrite(rows(40, 43, part="p1")))
    step(lambda: clean(now(table, **{"hoodie.cleaner.commits.retained": "1"})))
    step(lambda: LocalWriter(now(table)).delete_partitions(["new"]))
    step(lambda: LocalWriter(now(table)).upsert(rows(8, 9, day=60)))


def test_empty_texts_are_in_no_filter(table: HudiTable) -> None:
    """Hudi's filters refuse them."""
    empty = rows(1, 4, 70).set_column(2, "name", pa.array(["", "Né1", "X"]))
    LocalWriter(now(table)).upsert(empty)
    checked(table)
    answers_alike(table, ["lower(name) = ''", "lower(name) IN ('', 'né8')", "lower(name) = 'x'"])
    assert ids(table, "lower(name) = ''") == ["k1"]


def test_rollbacks_and_restores(table: HudiTable) -> None:
    LocalWriter(now(table)).upsert(rows(50, 51))
    saved = now(table).timeline.data().completed().last()
    assert saved is not None
    create_savepoint(now(table))
    LocalWriter(now(table)).upsert(rows(1, 2, day=70))
    last = now(table).timeline.data().completed().last()
    assert last is not None
    roll_back_instant(now(table), last.requested_time)
    checked(table)
    answers_alike(table)
    LocalWriter(now(table)).upsert(rows(3, 52, day=80))
    restore(now(table), saved.requested_time)
    answers_alike(table)
    LocalWriter(now(table)).upsert(rows(3, 53, day=90))
    checked(table)
    answers_alike(table)


def test_compactions_of_the_metadata_table_keep_all_records(table: HudiTable) -> None:
    for number in range(4):
        options = {"hoodie.metadata.compact.max.delta.commits": "2"}
        LocalWriter(now(table, **options)).upsert(rows(number, 60 + number, day=number))
    checked(table)
    answers_alike(table)
    metadata = now(table).metadata_table()
    assert metadata is not None
    for index in INDEXES:
        member = BLOOM_MEMBER if index.index_type == "bloom_filters" else STATS_MEMBER
        groups = metadata.group_readers(index.name)
        assert len(groups) == 2
        assert sum(len(entries.keys) for group in groups for entries in group.entries(column=member)) > 0


def test_explanations_name_the_index(table: HudiTable) -> None:
    def steps(where: str) -> dict[str, int]:
        return {step.by: step.slices for step in explain(now(table), ReadRequest(where=where)).steps}

    LocalWriter(now(table)).insert(rows(700, part="far"))
    found = steps("from_unixtime(ts, 'yyyy-MM-dd') > '2025-06-01'")
    assert found["by the expression index by_day"] == 1 < found["in the table"] == 4
    assert steps("lower(name) = 'né700'")["by the expression index small"] == 1
    assert steps("upper(name) = 'NÉ700'")["by the expression index big"] < 4
    assert "by the expression index big" not in steps("upper(name) > 'NÉ6'"), "the order of letters is not sure"
    assert not any("expression" in by for by in steps("from_unixtime(ts, 'yyyy-MM') = '2024-01'"))
    assert not any("expression" in by for by in steps("upper(id) = 'K1'"))


def test_values_that_are_not_sure_have_no_record(table: HudiTable) -> None:
    odd = rows(80, part="odd").to_pylist()[0] | {"name": "Straße", "ts": 300_000_000_000}
    LocalWriter(now(table)).insert(pa.Table.from_pylist([odd], SCHEMA))
    found = check_metadata_table(now(table))
    assert not found.differences
    assert ids(table, "upper(name) = 'STRASSE'") == ["k80"]
    assert ids(table, "lower(name) = 'straße'") == ["k80"]
    assert ids(table, "from_unixtime(ts, 'yyyy-MM-dd') < '2024-01-02'") == ["k0", "k80"]


def test_a_damaged_record_is_found(table: HudiTable) -> None:
    path = table.storage.root
    other = index_named("column_stats", "by_day", ["ts"], {"expr": "from_unixtime", "format": "yyyy"})
    document = json.loads(Path(str(path), INDEX_DEFINITIONS).read_text())
    stated = document["indexDefinitions"][other.name]
    stated["indexOptions"]["format"] = "yyyy"
    Path(str(path), INDEX_DEFINITIONS).write_text(json.dumps(document))
    differences = check_metadata_table(now(table), [other.name]).differences
    assert differences
    assert {each.partition for each in differences} == {other.name}


def test_one_is_dropped_and_made_again(table: HudiTable) -> None:
    assert drop_index(now(table), "by_day") == ("by_day",)
    assert "by_day" not in Path(str(table.storage.root), INDEX_DEFINITIONS).read_text()
    again = index_named("column_stats", "by_day", ["ts"], {"expr": "from_unixtime", "format": "yyyy"})
    build_index(now(table), again)
    (found,) = [each for each in indexes_of(now(table)) if each.name == "by_day"]
    assert (found.kind, found.columns) == ("column_stats", ("ts",))
    checked(table)


def test_an_expression_of_hudi_that_is_not_known_here_is_dropped_with_a_warning(
    table: HudiTable, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(str(table.storage.root), INDEX_DEFINITIONS)
    document = json.loads(path.read_text())
    stated = document["indexDefinitions"]["expr_index_big"]
    stated["indexFunction"] = stated["indexOptions"]["expr"] = "regexp_replace"
    path.write_text(json.dumps(document))
    LocalWriter(now(table)).upsert(rows(1, day=3))
    assert "expr_index_big of its metadata table are dropped" in caplog.text
    left = set(now(table).config.metadata_partitions)
    assert left == {FILES, "expr_index_by_day", "expr_index_years", "expr_index_small"}


def test_a_write_that_completes_late_has_them_made_again(table: HudiTable) -> None:
    """Statistics of partitions of a later write have not seen it, and readers of Hudi would apply them behind it."""
    LocalWriter(now(table)).upsert(rows(1, day=1))
    last = now(table).timeline.data().completed().last()
    assert last is not None
    early = Instant(last.requested_time.plus_milliseconds(-5), Action.DELTA_COMMIT, State.INFLIGHT)
    left = drop_overtaken(now(table), early, now(table).commit_metadata(last))
    assert set(left.config.metadata_partitions) == {FILES, "expr_index_small"}
    LocalWriter(now(table)).upsert(rows(1, day=3))
    checked(table)


@pytest.mark.parametrize("looks", [True, False], ids=["skep", "as-hudi"])
def test_statistics_of_partitions_leave_room_for_a_write_that_completes_late(
    looks: bool, table: HudiTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entries count as older than those of writes that were requested later; one of Hudi does not look at these."""
    if not looks:
        monkeypatch.setattr(participants, "drop_overtaken", lambda table, instant, metadata: table)
    apart = {"hoodie.parquet.small.file.limit": "0"}
    beside = RunsFirst(lambda: LocalWriter(now(table, **apart)).upsert(rows(0, day=1)))
    LocalWriter(now(table, **apart).with_context(runner=beside)).upsert(rows(300))
    assert beside.has_run
    assert "are dropped" not in caplog.text
    checked(table)
    assert ids(table, "upper(name) = 'NÉ300'") == ["k300"]
    LocalWriter(now(table)).upsert(rows(0, day=2))
    checked(table)


def test_what_can_not_be_indexed_is_refused(table: HudiTable, tmp_path: Path) -> None:
    def make(kind: str, column: str, **options: str) -> None:
        build_index(now(table), index_named(kind, "more", [column], options))

    with pytest.raises(SchemaError, match="no column nope"):
        make("column_stats", "nope", expr="upper")
    with pytest.raises(UnsupportedError, match="expressions over split are not supported"):
        make("column_stats", "name", expr="split", pattern=",")
    with pytest.raises(InputError, match="upper has no option numentries"):
        make("column_stats", "name", expr="upper", numentries="3")
    with pytest.raises(InputError, match="NONE is no kind of Bloom filter"):
        make("bloom_filters", "name", expr="upper", filtertype="NONE")
    spec = TableSpec(name="t6", schema=SCHEMA, record_key=("id",), version=6)
    old = create_table(LocalStorage(str(tmp_path / "t6")), spec, OPTIONS)
    with pytest.raises(UnsupportedError, match="from version 8 on"):
        build_index(old.with_options(OPTIONS), INDEXES[0])
    with pytest.raises(InputError, match="needs a name"):
        index_named("column_stats", None, ["ts"], {"expr": "year"})


def test_a_table_without_rows_has_to_wait(tmp_path: Path) -> None:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), version=9)
    made = create_table(LocalStorage(str(tmp_path / "t")), spec, OPTIONS)
    try:
        made = build_index(made.with_options(OPTIONS), INDEXES[0])
    except (MetadataTableError, SchemaError):
        return
    LocalWriter(now(made)).upsert(rows(1, 2))
    assert not check_metadata_table(now(made)).differences
