"""Repairs by the names of Hudi's shell: what each finds and changes, and a kill at any change of storage on its way."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_storage import KilledAtChanges

from skep_format.errors import (
    CommitConflictError,
    FormatError,
    InputError,
    SkepError,
    StorageError,
    TableVersionError,
    UnsupportedError,
)
from skep_format.metafile import PARQUET_METAFILE, read_metafile
from skep_format.names import PARTITION_METAFILE, FileGroupId
from skep_format.options import Options
from skep_format.properties import parse_properties
from skep_format.storage import LocalStorage
from skep_format.table_config import load_table_config, table_checksum
from skep_format.table_config.keys import BACKUP_PATH, PROPERTIES_PATH
from skep_format.timeline.instant import Action
from skep_table.commit.create import TableSpec, create_table
from skep_table.context import TableContext
from skep_table.metadata_write.kinds import record_index
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import clean, delete_unreadable_cleans, schedule_clean
from skep_table.services.compaction.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.services.compaction.planned import planned_slices, unschedule_compaction, validate_compaction
from skep_table.services.fsck import fsck_at
from skep_table.services.repairs.duplicates import DedupeType, copy_rows_that_stay, find_duplicates, remove_duplicates
from skep_table.services.repairs.metafiles import add_metafiles, migrate_metafiles
from skep_table.services.repairs.settings import (
    change_settings,
    load_properties,
    overwrite_settings,
    recover_settings,
)
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

BOTH = pytest.mark.parametrize("table_version", [6, 9], indirect=True)


def texts(table: HudiTable) -> list[tuple[str, str, int]]:
    """All rows, those with one key, too."""
    rows = read(table, ReadRequest(columns=("part", "id", "ts"))).to_arrow().to_pylist()
    return sorted((row["part"], row["id"], row["ts"]) for row in rows)


def later(maker: Any) -> dict[str, Any]:
    """A context in which the heartbeats of all processes have expired."""
    maker.clock.start = datetime(2040, 1, 1, tzinfo=timezone.utc)
    return maker.setting()


def killed_everywhere(
    maker: Any, tmp_path: Path, act: Callable[[HudiTable], object], check: Callable[[Any], None]
) -> int:
    """Kills `act` at each of its changes in turn; `check` looks at the table, repeats the act and looks once more."""
    at = 0
    while True:
        at += 1
        copied = maker.copy(tmp_path / "run")
        storage = KilledAtChanges(str(copied.folder), at)
        with suppress(StorageError):
            act(HudiTable(TableContext(storage), copied.table.config, copied.table.timeline))
        check(copied)
        if not storage.hit:
            return at


# -- metafiles


def without_metafiles(maker: Any, *partitions: str) -> None:
    for name in partitions:
        (maker.folder / name / PARTITION_METAFILE).unlink()


def test_metafiles_that_are_missing_are_written(maker: Any) -> None:
    first = maker.upsert(1, "a/1", "b/2")
    maker.upsert(2, "a/3")
    without_metafiles(maker, "a")
    (maker.folder / "other").mkdir()
    (maker.folder / "other" / "notes.parquet").write_bytes(b"")
    planned = add_metafiles(maker.table, plan=True)
    assert [(each.partition, each.is_there, each.changed) for each in planned] == [
        ("a", False, False),
        ("b", True, False),
    ]
    assert not (maker.folder / "a" / PARTITION_METAFILE).exists()
    done = add_metafiles(maker.table)
    assert [(each.partition, each.changed) for each in done] == [("a", True), ("b", False)]
    assert read_metafile(maker.table.storage, "a") == {"commitTime": first, "partitionDepth": "1"}
    assert maker.rows() == {"a/1": 1, "b/2": 1, "a/3": 2}
    assert not any(each.changed for each in add_metafiles(maker.table))


@BOTH
def test_metafiles_become_parquet_and_stay_so(maker: Any) -> None:
    maker.upsert(1, "a/1", "b/2")
    facts = {name: read_metafile(maker.table.storage, name) for name in ("a", "b")}
    assert not any(each.changed or each.as_base_file for each in migrate_metafiles(maker.table, plan=True))
    assert all(each.changed and each.as_text for each in migrate_metafiles(maker.table))
    assert not list(maker.folder.glob(f"*/{PARTITION_METAFILE}"))
    assert {name: read_metafile(maker.table.storage, name) for name in ("a", "b")} == facts
    written = pq.read_metadata(maker.folder / "a" / PARQUET_METAFILE)
    assert (written.num_rows, written.metadata[b"partitionDepth"]) == (0, b"1")
    maker.upsert(2, "a/1", "c/3")
    assert not (maker.folder / "c" / PARTITION_METAFILE).exists()
    assert (maker.folder / "c" / PARQUET_METAFILE).exists()
    assert maker.rows() == {"a/1": 2, "b/2": 1, "c/3": 2}
    (maker.folder / "c" / PARQUET_METAFILE).unlink()
    assert [each.partition for each in add_metafiles(maker.table) if each.changed] == ["c"]
    assert (maker.folder / "c" / PARQUET_METAFILE).exists()
    assert fsck_at(maker.table.context)[1] == []


class NeverSynced(LocalStorage):
    def sync(self, paths: Collection[str]) -> None:
        raise StorageError("injected", path=min(paths))


def test_a_write_that_fails_takes_its_parquet_metafile_along(maker: Any) -> None:
    maker.upsert(1, "a/1")
    migrate_metafiles(maker.table)
    table = HudiTable.in_context(TableContext(NeverSynced(str(maker.folder))))
    with pytest.raises(SkepError):
        LocalWriter(table).upsert(maker.frame(2, "c/1"))
    assert not (maker.folder / "c").exists()
    assert maker.rows() == {"a/1": 1}


@pytest.mark.parametrize("act", [add_metafiles, migrate_metafiles])
def test_a_kill_while_metafiles_are_written(act: Callable[..., Any], maker: Any, tmp_path: Path) -> None:
    maker.upsert(1, "a/1", "b/2", "c/3")
    rows = maker.rows()
    if act is add_metafiles:
        without_metafiles(maker, "a", "b")

    def check(copied: Any) -> None:
        if act is migrate_metafiles:
            assert copied.rows() == rows
        act(copied.table)
        assert copied.rows() == rows

    assert killed_everywhere(maker, tmp_path, act, check) > 2


# -- cleans


def unreadable_clean(maker: Any, content: bytes) -> Path:
    maker.upsert(1, "a/1")
    for ts in range(2, 6):
        maker.upsert(ts, "a/1")
    planned = schedule_clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    path = maker.path_of(planned)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("content", "inflight"), [(b"", False), (b"no Avro at all", True)])
def test_cleans_that_cannot_be_read_are_deleted(maker: Any, content: bytes, inflight: bool) -> None:
    path = unreadable_clean(maker, content)
    if inflight:
        Path(str(path).replace(".requested", ".inflight")).write_bytes(b"")
    table = maker.table.with_context(**later(maker))
    if content:
        with pytest.raises(FormatError):
            clean(table)
    (planned,) = delete_unreadable_cleans(table, plan=True)
    assert (planned.deleted, path.exists()) == (False, True)
    (done,) = delete_unreadable_cleans(table)
    assert done.deleted
    assert not maker.table.timeline.pending().of(Action.CLEAN).instants
    assert delete_unreadable_cleans(table) == []
    assert clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    assert maker.rows() == {"a/1": 5}


def test_a_clean_that_can_be_read_stays(maker: Any) -> None:
    for ts in range(1, 5):
        maker.upsert(ts, "a/1")
    assert schedule_clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    assert delete_unreadable_cleans(maker.table) == []
    assert len(maker.table.timeline.pending().of(Action.CLEAN)) == 1


# -- settings


def test_settings_are_set_and_removed(maker: Any) -> None:
    maker.upsert(1, "a/1")
    changes = {"hoodie.keep.min.commits": "7", "hoodie.database.name": "lake", "hoodie.table.create.schema": None}
    before = dict(maker.table.config.raw)
    assert {key: new for key, _, new in change_settings(maker.table, changes, plan=True).properties()}[
        "hoodie.keep.min.commits"
    ] == "7"
    assert maker.table.config.raw == before
    change = change_settings(maker.table, changes)
    after = maker.table.config.raw
    assert (change.before, change.after) == (before, after)
    assert after["hoodie.table.checksum"] == table_checksum("t", "lake")
    assert after == {k: v for k, v in (before | changes).items() if v} | {
        "hoodie.table.checksum": after["hoodie.table.checksum"]
    }
    stamp = (maker.folder / PROPERTIES_PATH).stat().st_mtime_ns
    assert change_settings(maker.table, changes).is_empty
    assert (maker.folder / PROPERTIES_PATH).stat().st_mtime_ns == stamp


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"hoodie.table.type": "MERGE_ON_READ"}, "table-type"),
        ({"hoodie.table.version": "8"}, "upgrade"),
        ({"hoodie.timeline.layout.version": "7"}, "upgrade"),
        ({"hoodie.archivelog.folder": "other"}, "timeline"),
        ({"hoodie.table.timeline.timezone": "LOCAL"}, "instants"),
        ({"hoodie.table.metadata.partitions": "files"}, "skep metadata"),
        ({"hoodie.table.checksum": "1"}, "names"),
        ({"hoodie.table.recordkey.fields": "ts"}, "rows were written by it"),
        ({"hoodie.table.partition.fields": None}, "rows were written by it"),
        ({"hoodie.table.cdc.enabled": "SOMEHOW"}, "SOMEHOW"),
        ({"hoodie.table.name": None}, "hoodie.table.name"),
    ],
)
def test_settings_that_files_or_rows_depend_on_are_refused(
    maker: Any, changes: dict[str, str | None], why: str
) -> None:
    maker.upsert(1, "a/1")
    before = (maker.folder / PROPERTIES_PATH).read_bytes()
    with pytest.raises((InputError, FormatError, TableVersionError), match=why):
        change_settings(maker.table, changes)
    assert (maker.folder / PROPERTIES_PATH).read_bytes() == before


@BOTH
def test_settings_are_overwritten(maker: Any) -> None:
    maker.upsert(1, "a/1")
    context = TableContext(LocalStorage(str(maker.folder)))
    good = dict(maker.table.config.raw)
    wrong = {key: text for key, text in good.items() if key != "hoodie.table.checksum"} | {"hoodie.more": "x"}
    assert not overwrite_settings(context, wrong, plan=True).is_empty
    assert maker.table.config.raw == good
    overwrite_settings(context, wrong)
    assert maker.table.config.raw == {**good, "hoodie.more": "x"}
    for damage in (b"", b"hoodie.table.name=t\n", good["hoodie.table.name"].encode()):
        (maker.folder / PROPERTIES_PATH).write_bytes(damage)
        change = overwrite_settings(context, wrong)
        assert change.before == {}
        assert maker.table.config.raw == {**good, "hoodie.more": "x"}
    with pytest.raises(InputError, match="table-type"):
        overwrite_settings(context, {**wrong, "hoodie.table.type": "MERGE_ON_READ"})
    (maker.folder / PROPERTIES_PATH).unlink()
    elsewhere = "9" if good["hoodie.table.version"] == "6" else "6"
    moved = {**wrong, "hoodie.table.version": elsewhere}
    moved.pop("hoodie.timeline.layout.version", None)
    with pytest.raises(SkepError, match=r"timeline|version"):
        overwrite_settings(context, moved)
    overwrite_settings(context, wrong)
    assert maker.rows() == {"a/1": 1}


def test_an_interrupted_change_of_settings_is_recovered(maker: Any) -> None:
    maker.upsert(1, "a/1")
    whole, backup = maker.folder / PROPERTIES_PATH, maker.folder / BACKUP_PATH
    context = TableContext(LocalStorage(str(maker.folder)))
    assert recover_settings(context).is_empty
    text = whole.read_bytes()
    for left in (None, b"", b"hoodie.table.name=t\nhoodie.tab"):
        backup.write_bytes(text)
        whole.unlink() if left is None else whole.write_bytes(left)
        assert not recover_settings(context, plan=True).is_empty
        assert backup.exists()
        recover_settings(context)
        assert not backup.exists()
        assert parse_properties(whole.read_bytes()) == parse_properties(text)
    backup.write_bytes(b"")
    assert recover_settings(context).is_empty
    assert not backup.exists()
    whole.write_bytes(b"")
    with pytest.raises(InputError, match="backup"):
        recover_settings(context)


def test_a_kill_while_settings_are_changed(maker: Any, tmp_path: Path) -> None:
    maker.upsert(1, "a/1")
    (maker.folder / BACKUP_PATH).write_bytes((maker.folder / PROPERTIES_PATH).read_bytes())
    before = dict(maker.table.config.raw)
    acts: list[Callable[[HudiTable], object]] = [
        lambda table: change_settings(table, {"hoodie.x": "1"}),
        lambda table: overwrite_settings(table.context, {**before, "hoodie.x": "1"}),
    ]
    for act in acts:

        def check(copied: Any, act: Callable[[HudiTable], object] = act) -> None:
            storage = LocalStorage(str(copied.folder))
            assert load_table_config(storage).raw in (before, {**before, "hoodie.x": "1"})
            act(copied.table)
            assert load_table_config(storage).raw == {**before, "hoodie.x": "1"}

        assert killed_everywhere(maker, tmp_path, act, check) > 1


def test_properties_are_loaded_from_any_place(tmp_path: Path) -> None:
    (tmp_path / "p.properties").write_text("a=1\nb = two\n")
    for path in (str(tmp_path / "p.properties"), f"file:{tmp_path}/p.properties"):
        assert load_properties(path, Options()) == {"a": "1", "b": "two"}
    with pytest.raises(InputError, match="no file"):
        load_properties(str(tmp_path / "none"), Options())


# -- duplicates


def with_duplicates(maker: Any) -> None:
    """Key 1 in three file groups of a, key 2 in two; b has one row."""
    for ts, keys in ((1, ("a/1", "a/2", "a/3", "b/9")), (5, ("a/1",)), (4, ("a/1", "a/2"))):
        LocalWriter(maker.table.with_context(**maker.setting())).bulk_insert(maker.frame(ts, *keys))


def delete(table: HudiTable, keep: DedupeType) -> Any:
    found = find_duplicates(table, "a", keep)
    remove_duplicates(table, found, keep, lambda change, more: change(LocalWriter(table.with_options(more))))
    return found


WITHOUT = [("a", "1", 4), ("a", "2", 4), ("a", "3", 1), ("b", "9", 1)]


@pytest.mark.parametrize(
    ("kind", "keep"), [("maker", DedupeType.INSERT), ("maker", DedupeType.UPSERT), ("mor_maker", DedupeType.UPDATE)]
)
def test_the_row_of_the_newest_commit_stays(kind: str, keep: DedupeType, request: pytest.FixtureRequest) -> None:
    maker = request.getfixturevalue(kind)
    with_duplicates(maker)
    before = {
        row["_hoodie_record_key"]: row
        for row in read(maker.table, ReadRequest(where="id = '3'")).to_arrow().to_pylist()
    }
    found = delete(maker.table, keep)
    assert (len(found.rows), len(found.deleted)) == (5, 3)
    assert texts(maker.table) == WITHOUT
    assert len(find_duplicates(maker.table, "a", keep).rows) == 0
    # no update brings a row back, and no other row was changed
    maker.upsert(7, "a/1")
    assert texts(maker.table) == [("a", "1", 7), *WITHOUT[1:]]
    after = {
        row["_hoodie_record_key"]: row
        for row in read(maker.table, ReadRequest(where="id = '3'")).to_arrow().to_pylist()
    }
    assert [row["_hoodie_commit_seqno"] for row in after.values()] == [
        row["_hoodie_commit_seqno"] for row in before.values()
    ]
    assert fsck_at(maker.table.context)[1] == []


@BOTH
@pytest.mark.parametrize("kind", ["maker", "mor_maker"])
def test_rows_of_one_file_group(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Which one can't be deleted from alone: the partition is replaced by the rows that stay."""
    maker = request.getfixturevalue(kind)
    maker.upsert(1, "b/9")
    others = maker.frame(0, *(f"a/{number}" for number in range(10, 19)))
    both = pa.concat_tables([others, maker.frame(3, "a/1"), maker.frame(2, "a/1"), maker.frame(1, "a/2")])
    LocalWriter(maker.table.with_context(**maker.setting())).bulk_insert(both)
    LocalWriter(maker.table.with_context(**maker.setting())).bulk_insert(maker.frame(5, "a/2"))
    assert find_duplicates(maker.table, "a", DedupeType.UPSERT).within_group
    with pytest.raises(InputError, match="key '1' of one commit"):
        find_duplicates(maker.table, "a", DedupeType.INSERT)
    copy_rows_that_stay(maker.table, "a", DedupeType.UPSERT, str(tmp_path / "copy"))
    delete(maker.table.with_context(**maker.setting()), DedupeType.UPSERT)
    few = [row for row in texts(maker.table) if len(row[1]) == 1]
    assert few == [("a", "1", 2), ("a", "2", 5), ("b", "9", 1)]  # the last that a commit wrote
    assert sorted(pq.read_table(tmp_path / "copy")["ts"].to_pylist()) == [0] * 9 + [2, 5]
    maker.upsert(7, "a/1", "a/2")
    assert {key: ts for key, ts in maker.rows().items() if ts} == {"a/1": 7, "a/2": 7, "b/9": 1}
    assert fsck_at(maker.table.context)[1] == []


def test_what_has_no_duplicates_to_delete(maker: Any, tmp_path: Path) -> None:
    maker.upsert(1, "a/1")
    with pytest.raises(InputError, match="no partition 'c'"):
        find_duplicates(maker.table, "c", DedupeType.INSERT)
    before = maker.table.timeline.instants
    delete(maker.table, DedupeType.INSERT)
    assert maker.table.timeline.instants == before
    create_table(LocalStorage(str(tmp_path / "keyless")), TableSpec(name="k", schema=maker.frame(1, "a/1").schema))
    with pytest.raises(UnsupportedError, match="record key"):
        find_duplicates(HudiTable.open(str(tmp_path / "keyless")), "", DedupeType.INSERT)


def test_the_record_index_finds_the_rows_that_stay(maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bulk insert of Hudi's looks no key up, and leaves the newest place of a key in the index."""

    def table(**more: Any) -> HudiTable:
        options = {"metadata__enable": "true", "metadata__record__index__enable": "true", **more}
        return maker.table.with_context(**maker.setting(**options))

    with monkeypatch.context() as as_hudi:
        as_hudi.setattr(record_index, "_still_elsewhere", lambda _write, _part: pa.array([], pa.string()))
        for ts in (1, 5, 4):
            LocalWriter(table()).bulk_insert(maker.frame(ts, "a/1", f"a/1{ts}"))
    assert len(delete(table(), DedupeType.INSERT).deleted) == 2
    assert "record_index" in maker.table.config.metadata_partitions
    assert fsck_at(maker.table.context, metadata=True)[1] == []
    LocalWriter(table(index__type="RECORD_INDEX")).upsert(maker.frame(9, "a/1"))
    assert [row for row in texts(maker.table) if row[1] == "1"] == [("a", "1", 9)]


@pytest.mark.parametrize("kind", ["maker", pytest.param("mor_maker", marks=pytest.mark.slow)])
def test_a_kill_while_duplicates_are_deleted(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    maker = request.getfixturevalue(kind)
    with_duplicates(maker)
    rows = texts(maker.table)

    def check(copied: Any) -> None:
        assert texts(copied.table) in (rows, WITHOUT)
        delete(copied.table.with_context(**later(maker)), DedupeType.INSERT)
        assert texts(copied.table) == WITHOUT

    killed_everywhere(maker, tmp_path, lambda table: delete(table, DedupeType.INSERT), check)


# -- planned compactions


def with_logs(maker: Any) -> str:
    """A planned compaction of two file groups; its time."""
    maker.upsert(1, "a/1", "b/2")
    maker.upsert(2, "a/1", "b/2")
    planned = schedule_compaction(maker.table.with_context(**maker.setting()))
    assert planned is not None
    return planned.requested_time


@BOTH
def test_a_plan_is_compared_with_the_files(mor_maker: Any) -> None:
    time = with_logs(mor_maker)
    mor_maker.upsert(3, "a/1")
    valid = validate_compaction(mor_maker.table, time)
    assert [(each.partition, each.log_files, each.error) for each in valid] == [("a", 1, None), ("b", 1, None)]
    assert planned_slices(mor_maker.table, time) == valid
    (log,) = (mor_maker.folder / "b").glob(".*.log.*")
    log.rename(log.with_name(log.name + "-lost"))
    assert [each.error for each in validate_compaction(mor_maker.table, time)] == [None, f"{log.name} is missing"]
    with pytest.raises(InputError, match=f"pending are: {time}"):
        validate_compaction(mor_maker.table, "20200101000000000")


@BOTH
def test_a_plan_is_taken_back(mor_maker: Any) -> None:
    time = with_logs(mor_maker)
    rows = mor_maker.rows()
    assert len(unschedule_compaction(mor_maker.table, time, plan=True)) == 2
    assert mor_maker.table.timeline.pending().of(Action.COMPACTION)
    assert len(unschedule_compaction(mor_maker.table, time)) == 2
    assert not len(mor_maker.table.timeline.pending())
    assert mor_maker.rows() == rows
    mor_maker.upsert(3, "a/1")
    assert compact(mor_maker.table)
    assert mor_maker.rows() == {"a/1": 3, "b/2": 2}


@BOTH
def test_one_file_group_is_taken_out_of_a_plan(mor_maker: Any) -> None:
    time = with_logs(mor_maker)
    of_a, of_b = planned_slices(mor_maker.table, time)
    with pytest.raises(InputError, match="does not plan"):
        unschedule_compaction(mor_maker.table, time, FileGroupId("a", of_b.file_id))
    assert unschedule_compaction(mor_maker.table, time, FileGroupId("a", of_a.file_id)) == [of_a]
    assert planned_slices(mor_maker.table, time) == [of_b]
    execute_pending_compactions(mor_maker.table)
    assert [len(s.log_files) for part in ("a", "b") for s in mor_maker.table.view().slices(part)] == [1, 0]
    assert mor_maker.rows() == {"a/1": 2, "b/2": 2}


@BOTH
def test_a_plan_after_which_a_write_went_on(mor_maker: Any, table_version: int) -> None:
    time = with_logs(mor_maker)
    mor_maker.upsert(3, "a/1")
    rows = mor_maker.rows()
    if table_version == 6:
        with pytest.raises(UnsupportedError, match=f"_{time}.log"):
            unschedule_compaction(mor_maker.table, time)
        assert [
            each.partition for each in unschedule_compaction(mor_maker.table, time, group_of(mor_maker, time, "b"))
        ] == ["b"]
    else:
        unschedule_compaction(mor_maker.table, time)
    assert mor_maker.rows() == rows
    compact(mor_maker.table)
    assert mor_maker.rows() == rows
    assert fsck_at(mor_maker.table.context)[1] == []


def group_of(maker: Any, time: str, partition: str) -> FileGroupId:
    (found,) = (each for each in planned_slices(maker.table, time) if each.partition == partition)
    return FileGroupId(partition, found.file_id)


def test_a_plan_that_is_being_carried_out_stays(mor_maker: Any) -> None:
    time = with_logs(mor_maker)
    (pending,) = mor_maker.table.timeline.pending().of(Action.COMPACTION)
    path = mor_maker.path_of(pending)
    Path(str(path).replace(".requested", ".inflight")).write_bytes(b"")
    with pytest.raises((InputError, CommitConflictError), match=r"carries out|carrying out"):
        unschedule_compaction(mor_maker.table, time)


@BOTH
def test_a_kill_while_a_plan_is_taken_back(mor_maker: Any, tmp_path: Path) -> None:
    time = with_logs(mor_maker)
    group, rows = group_of(mor_maker, time, "a"), mor_maker.rows()

    def check(copied: Any) -> None:
        assert copied.rows() == rows
        compact(copied.table)
        assert copied.rows() == rows

    for chosen in (None, group):
        killed_everywhere(
            mor_maker, tmp_path, lambda table, chosen=chosen: unschedule_compaction(table, time, chosen), check
        )
