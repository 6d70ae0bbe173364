"""Writes and services that copy row groups as they are: the same rows as without, whatever the history."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from copied_groups import changed_columns, copied_groups
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.basefile import BaseFileWriter, OpenBaseFile, read_footer
from skep_format.basefile.pages import damaged_pages
from skep_format.basefile.row_groups import RowGroups
from skep_format.errors import CorruptFileError
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.merge.rows import DELETED, PARTIAL
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import execute_pending_compactions, schedule_compaction
from skep_table.table import HudiTable
from skep_table.write.indexes.bloom_lookup import BloomLookUp
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("f", pa.float64()), ("text", pa.string()), ("l", pa.list_(pa.int32()))]
)
OPTIONS = {
    "hoodie.parquet.block.size": "4000",
    "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true",
    "hoodie.clustering.plan.strategy.target.file.max.bytes": "20000",
    "hoodie.compact.inline": "false",
}


def rows(numbers: range | list[int], ts: int = 1) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{at:05d}" for at in numbers],
            "ts": [ts] * len(numbers),
            "f": [float("nan") if at % 50 == 7 else at / ts for at in numbers],
            "text": [f"text {at % 9} of {ts}" for at in numbers],
            "l": [[at, ts][: at % 3] for at in numbers],
        },
        schema=SCHEMA,
    )


def make(folder: Path, options: dict[str, str] | None = None, **spec: Any) -> HudiTable:
    table = create_table(
        LocalStorage(str(folder)), TableSpec(name="t", schema=SCHEMA, record_key=("id",), ordering="ts", **spec)
    )
    return table.with_context(runner=ThreadRunner(1), options=Options({**OPTIONS, **(options or {})}))


def base_files(table: HudiTable) -> list[str]:
    view = table.reload().view()
    return [slice_.base_file.path for path in view.partitions() for slice_ in view.slices(path) if slice_.base_file]


def groups_of(table: HudiTable) -> list[int]:
    """The rows of each row group of the newest base file."""
    (path,) = base_files(table)
    metadata = pq.read_metadata(f"{table.storage.root}/{path}")
    return [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]


def copies(act: Callable[[], object]) -> int:
    """How many row groups are copied meanwhile."""
    with copied_groups() as copied:
        act()
    return len(copied)


def content(table: HudiTable) -> dict[str, tuple[Any, ...]]:
    found = read(table.reload(), ReadRequest(columns=("id", "ts", "text"))).to_arrow()
    assert len(set(found["id"].to_pylist())) == len(found)
    return {row["id"]: (row["ts"], row["text"]) for row in found.to_pylist()}


# -- what is copied


def test_an_upsert_writes_the_row_groups_of_its_keys(tmp_path: Path) -> None:
    table = make(tmp_path, {"hoodie.parquet.block.size": "40000"})
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(4000)))
    before = groups_of(table)
    assert len(before) > 5
    assert copies(lambda: writer.upsert(rows(range(100, 105), ts=2))) == len(before) - 1
    assert groups_of(table) == before
    expected = {row["id"]: (row["ts"], row["text"]) for row in rows(range(4000)).to_pylist()}
    expected |= {row["id"]: (row["ts"], row["text"]) for row in rows(range(100, 105), ts=2).to_pylist()}
    assert content(table) == expected


def test_keys_without_positions_are_looked_for_in_the_key_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an index that opens no base file, and of rows that come over Spark's shuffle."""
    table = make(tmp_path)
    LocalWriter(table).bulk_insert(rows(range(400)))
    groups = len(groups_of(table))
    monkeypatch.setattr("skep_table.write.indexes.bloom_lookup.uses_positions", lambda _: False)
    given = rows([*range(100, 105), 395, 900], ts=2)
    assert copies(lambda: LocalWriter(table).upsert(given)) == groups - 2
    assert content(table)["k00900"] == (2, "text 0 of 2")
    assert len(content(table)) == 401


def test_a_delete_writes_the_row_group_of_its_keys(tmp_path: Path) -> None:
    table = make(tmp_path)
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(400)))
    groups = groups_of(table)
    keys = rows(range(10, 20))
    assert copies(lambda: writer.delete(keys)) == len(groups) - 1
    assert sorted(content(table)) == [f"k{at:05d}" for at in range(400) if not 10 <= at < 20]
    whole = rows(range(groups[0], groups[0] + groups[1]))
    assert copies(lambda: writer.delete(whole)) == len(groups) - 1
    assert len(groups_of(table)) == len(groups) - 1
    assert copies(lambda: writer.upsert(rows(range(10, 20), ts=3))) >= len(groups) - 4
    assert content(table)["k00010"][0] == 3


def test_a_small_file_is_filled_without_reading_its_rows(tmp_path: Path) -> None:
    table = make(tmp_path)
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(200)))
    groups = groups_of(table)
    assert groups[-1] > 3
    assert copies(lambda: writer.upsert(rows(range(1000, 1003)))) == len(groups)
    assert groups_of(table) == [*groups, 3]
    assert copies(lambda: writer.insert(rows(range(2000, 2001)))) == len(groups) + 1
    assert groups_of(table) == [*groups, 3, 1]
    assert copies(lambda: writer.insert(rows(range(3000, 3001)))) == len(groups) + 1
    assert groups_of(table) == [*groups, 3, 2]
    writer.insert(rows(range(4000, 4002)))
    assert groups_of(table) == [*groups, 3 + 2 + 2]


def test_many_small_writes_leave_few_small_row_groups(tmp_path: Path) -> None:
    """No more than the binary logarithm of what fits into a large one; each row is written as often as that."""
    table = make(tmp_path, {"hoodie.parquet.block.size": "20000"})
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(1000)))
    for count in range(1, 41):
        writer.insert(rows([5000 + count]))
        small = [size for size in groups_of(table) if size <= count]
        assert small == [1 << bit for bit in reversed(range(6)) if count >> bit & 1]


def test_a_compaction_writes_the_row_groups_that_its_logs_change(tmp_path: Path) -> None:
    table = make(tmp_path, type=TableType.MERGE_ON_READ)
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(400)))
    groups = groups_of(table)
    writer.upsert(rows(range(40, 43), ts=2))
    writer.delete(rows(range(380, 382)))
    before = content(table)

    def compact() -> None:
        assert schedule_compaction(table.reload()) is not None
        assert execute_pending_compactions(table)

    assert copies(compact) == len(groups) - 2
    assert content(table) == before
    assert sum(groups_of(table)) == 398


@pytest.mark.parametrize("strategy", ["", "SparkBinaryCopyClusteringExecutionStrategy"])
def test_a_clustering_without_order_copies_large_row_groups(tmp_path: Path, strategy: str) -> None:
    options = {"hoodie.clustering.plan.strategy.target.file.max.bytes": str(1 << 30)}
    if strategy:
        options["hoodie.clustering.execution.strategy.class"] = (
            f"org.apache.hudi.client.clustering.run.strategy.{strategy}"
        )
    table = make(tmp_path, options)
    for at in range(0, 400, 100):
        LocalWriter(table.with_options({"hoodie.parquet.small.file.limit": "0"})).bulk_insert(rows(range(at, at + 100)))
    LocalWriter(table).bulk_insert(rows(range(900, 903)))
    before = content(table)
    assert len(base_files(table)) == 5
    assert copies(lambda: cluster(table)) > 10
    assert content(table) == before
    (path,) = base_files(table)
    footer = read_footer(table.storage, path)
    assert (footer.num_rows, footer.min_key, footer.max_key) == (403, "k00000", "k00902")
    assert footer.bloom is not None
    assert all(footer.bloom.might_contain(pa.array(sorted(before))).to_pylist())


def test_a_file_with_other_columns_is_decoded(tmp_path: Path) -> None:
    table = make(tmp_path)
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(100)))
    wider = rows(range(5), ts=2).append_column("more", pa.array(range(5), pa.int64()))
    assert copies(lambda: writer.upsert(wider)) == 0
    assert len(content(table)) == 100
    assert copies(lambda: LocalWriter(table.reload()).upsert(wider)) > 0


def test_positions_that_do_not_fit_the_file_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than two rows with one key."""
    table = make(tmp_path)
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(400)))
    confirm = BloomLookUp.confirm
    monkeypatch.setattr(BloomLookUp, "confirm", lambda *given: confirm(*given) + 400)
    with pytest.raises(CorruptFileError, match="5 keys are not in the row groups in which they were found"):
        writer.upsert(rows(range(100, 105), ts=2))
    monkeypatch.undo()
    assert content(table)["k00100"][0] == 1


def test_a_wrong_footer_fails_the_write_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path)
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(400)))
    before = base_files(table)
    groups = RowGroups.rows.func  # type: ignore[attr-defined]
    monkeypatch.setattr(RowGroups, "rows", property(lambda self: [count + 1 for count in groups(self)]))
    with pytest.raises(CorruptFileError, match="its footer contradicts itself"):
        writer.upsert(rows(range(100, 105), ts=2))
    monkeypatch.undo()
    assert base_files(table) == before
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


# -- columns of row groups that change


CHANGED = ("_hoodie_commit_time", "_hoodie_commit_seqno")


def test_an_upsert_writes_the_columns_that_it_changes(tmp_path: Path) -> None:
    table = make(tmp_path, {"hoodie.parquet.block.size": "40000"})
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(400)))
    given = rows(range(400)).set_column(1, "ts", pa.array([2] * 400))
    with changed_columns() as changed:
        writer.upsert(given)
    assert changed == [(*CHANGED, "ts", "l")] * len(groups_of(table))  # nested values are not compared
    found = read(table.reload(), ReadRequest(columns=tuple(SCHEMA.names))).to_arrow()
    assert repr(found.to_pylist()) == repr(given.to_pylist())
    check_files(table)


@pytest.mark.parametrize(
    ("ids", "spec", "is_read"),
    [
        (pa.array([f"k{at}" for at in range(40)]), {}, False),
        (pa.array(range(-20, 20), pa.int32()), {}, False),
        (pa.array(range(40), pa.int64()), {"ordering": "id"}, True),
        (pa.array(range(40), pa.date32()), {}, True),
        (pa.array([at / 2 for at in range(40)]), {}, True),
        (pa.array([f"k{at}" for at in range(40)]), {"record_key": ("id", "ts")}, True),
    ],
)
def test_an_upsert_reads_no_column_that_keys_are_the_text_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: pa.Array, spec: dict[str, Any], *, is_read: bool
) -> None:
    """Rows of one key have its values in common, where the text of a value is that of no other."""
    stored = pa.table({"id": ids, "ts": [1] * 40, "text": [f"text {at}" for at in range(40)]})
    spec = {"record_key": ("id",), "ordering": "ts", **spec}
    table = create_table(LocalStorage(str(tmp_path)), TableSpec(name="t", schema=stored.schema, **spec))
    LocalWriter(table).bulk_insert(stored)
    given = stored.slice(3, 5).set_column(2, "text", pa.array(["new"] * 5))
    read_columns: list[list[str]] = []
    read_rows = OpenBaseFile.rows

    def noted(file: OpenBaseFile, **how: Any) -> Any:
        if how.get("schema") is not None:
            read_columns.append(how["schema"].names())
        return read_rows(file, **how)

    with monkeypatch.context() as patch:
        patch.setattr(OpenBaseFile, "rows", noted)
        LocalWriter(table).upsert(given)
    assert ["id" in names for names in read_columns] == [is_read]
    assert not any("_hoodie_partition_path" in names for names in read_columns)
    found = read(table.reload(), ReadRequest(columns=("id", "_hoodie_record_key", "text"))).to_arrow()
    assert found["id"].to_pylist() == ids.to_pylist()
    assert found["text"].to_pylist() == [f"text {at}" if not 3 <= at < 8 else "new" for at in range(40)]
    assert len(pc.unique(found["_hoodie_record_key"])) == 40
    check_files(table)


def test_a_column_gets_a_dictionary_with_many_new_values(tmp_path: Path) -> None:
    """Few of them do not make it worth one."""
    table = make(tmp_path, {"hoodie.parquet.block.size": "200000"})
    writer = LocalWriter(table)
    numbers = list(range(1000))
    writer.bulk_insert(rows(numbers).set_column(3, "text", pa.array([f"own {at}" for at in numbers])))

    def has_dictionary() -> bool:
        (path,) = base_files(table)
        group = pq.read_metadata(f"{table.storage.root}/{path}").row_group(0)
        columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
        return bool(columns["text"].has_dictionary_page)

    for count, expected in ((200, False), (1000, True)):
        writer.upsert(rows(numbers[:count], ts=2))
        assert has_dictionary() == expected
        check_files(table)
    assert content(table)["k00007"] == (2, "text 7 of 2")


def test_floats_are_compared_bit_by_bit(tmp_path: Path) -> None:
    table = make(tmp_path)
    writer = LocalWriter(table)
    before = rows([1, 2, 3]).set_column(2, "f", pa.array([0.0, float("nan"), 1.0]))
    writer.bulk_insert(before)
    with changed_columns() as changed:
        writer.upsert(before.set_column(2, "f", pa.array([0.0, float("nan"), 1.0])))
        writer.upsert(before.set_column(2, "f", pa.array([-0.0, float("nan"), 1.0])))
    assert ["f" in names for names in changed] == [False, True]
    found = read(table.reload(), ReadRequest(columns=("f",))).to_arrow().column(0).to_pylist()
    assert math.copysign(1, found[0]) == -1


def test_small_row_groups_that_change_together_are_joined(tmp_path: Path) -> None:
    table = make(tmp_path, {"hoodie.parquet.block.size": "40000"})
    LocalWriter(table).bulk_insert(rows(range(60)))
    for at in (100, 200, 201, 300):
        LocalWriter(table.with_options({"hoodie.parquet.block.size": "1"})).insert(rows([at]))
    small = groups_of(table)
    assert len(small) > 3
    LocalWriter(table).upsert(rows([*range(60), 100, 200, 201, 300], ts=2))
    assert groups_of(table) == [64]


def set_text(keys: list[str], ts: int) -> Callable[[HudiTable], pa.Table]:
    """What an UPDATE computes that sets `text` and `ts`: the other columns are missing."""

    def compute(snapshot: HudiTable) -> pa.Table:
        columns = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name")
        stored = read(snapshot, ReadRequest(columns=columns)).to_arrow()
        stored = stored.filter(pc.is_in(stored[columns[0]], pa.array(keys)))
        count = len(stored)
        marks = {DELETED: pa.repeat(False, count), PARTIAL: pa.repeat(True, count)}
        given = {"ts": pa.repeat(ts, count), "text": pa.repeat(f"set at {ts}", count), **marks}
        return pa.table({**dict(zip(columns, stored.columns, strict=True)), **given})

    return compute


def never(_: HudiTable) -> pa.Table:
    raise AssertionError("whole rows are not needed")


def test_rows_that_a_statement_updates_need_only_its_columns(tmp_path: Path) -> None:
    table = make(tmp_path, {"hoodie.parquet.block.size": "20000"})
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(400)))
    before = read(table.reload(), ReadRequest()).to_arrow()
    with changed_columns() as changed, copied_groups() as copied:
        done = writer.change(never, ("ts", "text"), set_text(["k00010", "k00390"], 5))
    assert changed == [(*CHANGED, "ts", "text")] * 2
    assert len(copied) == len(groups_of(table)) - 2
    after = read(table.reload(), ReadRequest()).to_arrow()
    kept = ["id", "f", "l", "_hoodie_record_key", "_hoodie_partition_path"]
    assert repr(after.select(kept).to_pylist()) == repr(before.select(kept).to_pylist())
    assert content(table) == {
        row["id"]: (5, "set at 5") if row["id"] in ("k00010", "k00390") else (row["ts"], row["text"])
        for row in before.select(["id", "ts", "text"]).to_pylist()
    }
    of_commit = pc.equal(after["_hoodie_commit_time"], done.instant.requested_time)
    assert after.filter(of_commit)["id"].to_pylist() == ["k00010", "k00390"]
    check_files(table)


def test_a_file_that_is_decoded_keeps_the_other_columns_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path)
    LocalWriter(table).bulk_insert(rows(range(400)))
    monkeypatch.setattr(BaseFileWriter, "takes", lambda *_: False)
    before = read(table.reload(), ReadRequest(columns=("id", "f", "l"))).to_arrow()
    with changed_columns() as changed:
        LocalWriter(table).change(never, ("ts", "text"), set_text(["k00010"], 5))
    assert changed == []
    after = read(table.reload(), ReadRequest(columns=("id", "f", "l"))).to_arrow()
    assert repr(after.to_pylist()) == repr(before.to_pylist())
    assert content(table)["k00010"] == (5, "set at 5")


# -- any history

KINDS: dict[str, dict[str, Any]] = {
    "cow": {},
    "cow 9": {"version": 9},
    "virtual keys": {"properties": {"hoodie.populate.meta.fields": "false"}},
    "mor": {"type": TableType.MERGE_ON_READ},
    "mor 9": {"type": TableType.MERGE_ON_READ, "version": 9},
}
KEYS = st.one_of(
    st.tuples(st.integers(0, 120), st.integers(1, 12)).map(lambda span: list(range(span[0], span[0] + span[1]))),
    st.lists(st.integers(0, 140), min_size=1, max_size=6, unique=True),
)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["upsert", "upsert", "set", "change", "delete"]), KEYS, st.integers(1, 9)),
    st.tuples(st.sampled_from(["compact", "cluster"]), st.just([]), st.just(0)),
)


class History:
    """The same steps on a table that copies row groups and on one that does not."""

    def __init__(self, folder: Path, kind: str) -> None:
        spec = KINDS[kind]
        self.copies, self.decodes = make(folder / "copies", **spec), make(folder / "decodes", **spec)

    def run(self, step: str, keys: list[int], ts: int) -> None:
        self._on(self.copies, step, keys, ts)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BaseFileWriter, "takes", lambda *_: False)
            patch.setattr("skep_table.services.clustering.cluster.can_copy", lambda *_: False)
            self._on(self.decodes, step, keys, ts)
        assert self._rows(self.copies) == self._rows(self.decodes)
        check_files(self.copies)

    def _on(self, table: HudiTable, step: str, keys: list[int], ts: int) -> None:
        table = table.reload()
        if step == "compact":
            if table.config.is_mor and schedule_compaction(table) is not None:
                execute_pending_compactions(table)
        elif step == "cluster":
            cluster(table)
        elif step == "change" and table.config.populate_meta_fields and not table.config.is_mor:
            LocalWriter(table).change(never, ("ts", "text"), set_text([f"k{at:05d}" for at in keys], ts))
        elif step == "set" and (not table.config.is_mor or table.config.version > 6):
            held = content(table)
            given = rows([at for at in keys if f"k{at:05d}" in held], ts)
            LocalWriter(table).upsert(given.select(["id", "ts", "text"]), partial=True)
        else:
            getattr(LocalWriter(table), "delete" if step == "delete" else "upsert")(rows(keys, ts))

    @staticmethod
    def _rows(table: HudiTable) -> list[str]:
        """As text, where NaN equals itself; the instants by their order. File ids, by which tasks are ordered, are
        random.
        """
        table = table.reload()
        found = read(table, ReadRequest()).to_arrow()
        drawn = {"_hoodie_file_name", "_hoodie_commit_seqno"}
        found = found.drop_columns([name for name in found.schema.names if name in drawn])
        instants = sorted(instant.requested_time for instant in table.timeline.data().completed().instants)
        texts = [repr(row) for row in found.sort_by("id").to_pylist()]
        for number, instant in enumerate(instants):
            texts = [text.replace(instant, f"<{number}>") for text in texts]
        return texts


def check_files(table: HudiTable) -> None:
    """What footers state is true of the pages, and no key is missed by the filter."""
    for path in base_files(table):
        assert list(damaged_pages(table.storage, path)) == []
        footer = read_footer(table.storage, path)
        stored = pq.read_table(f"{table.storage.root}/{path}")
        assert footer.num_rows == len(stored)
        if not len(stored) or not table.config.populate_meta_fields:
            continue
        assert stored["_hoodie_file_name"].unique().to_pylist() == [path.rpartition("/")[2]]
        keys = stored["_hoodie_record_key"]
        assert footer.bloom is not None
        assert pc.all(footer.bloom.might_contain(keys)).as_py()
        assert footer.min_key is not None
        assert footer.max_key is not None
        assert footer.min_key <= pc.min(keys).as_py()
        assert footer.max_key >= pc.max(keys).as_py()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(steps=st.lists(STEPS, min_size=3, max_size=8))
def test_a_history_ends_with_the_same_rows(
    kind: str, steps: list[tuple[str, list[int], int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    history = History(tmp_path_factory.mktemp("histories"), kind)
    history.run("upsert", list(range(100)), 1)
    for step in steps:
        history.run(*step)


def test_a_long_history(tmp_path: Path) -> None:
    """Copies of copies of copies."""
    history = History(tmp_path, "cow")
    history.run("upsert", list(range(300)), 1)
    with copied_groups() as copied:
        for at, step in zip(range(20), itertools.cycle(["upsert", "delete", "upsert"]), strict=False):
            history.run(step, list(range(at * 13, at * 13 + 5)), at + 2)
    assert len(copied) > 100
