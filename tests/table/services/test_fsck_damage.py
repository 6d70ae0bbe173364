"""Whatever is damaged or lost of a table, fsck names it, goes on to the next check, and repairs what costs no row."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.bloom.filter import BloomFilter
from skep_format.errors import NotATableError, SkepError
from skep_format.properties import parse_properties
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_table.context import TableContext
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean, schedule_clean
from skep_table.services.compaction.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.services.fsck import FileFinding, Problem, Repair, fsck_at, repair
from skep_table.services.undo.rollback import create_savepoint, roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from tests.blooms import build_bloom

pytestmark = pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
INDEXED = {
    "metadata__enable": "true",
    "metadata__record__index__enable": "true",
    "metadata__record__index__min__filegroup__count": "1",
    "metadata__compact__max__delta__commits": "2",
}
LEAST = {
    "keep__max__commits": 4,
    "keep__min__commits": 3,
    "cleaner__commits__retained": 1,
    "commits__archival__batch": 1,
}


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def made(
    request: pytest.FixtureRequest,
    maker: Any,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    table_version: int,
) -> Any:
    """A table with every kind of file on its timeline: archived instants, a rollback, a clean, a savepoint, plans."""
    kind = table_version, request.param
    if kind not in _built:
        _built[kind] = build(type(maker)(tmp_path_factory.mktemp("built") / "t", maker.clock), request.param)
    return _built[kind].copy(tmp_path / "made")


_built: dict[tuple[int, TableType], Any] = {}


def build(made: Any, kind: TableType) -> Any:
    made.create(kind)

    def here(**options: Any) -> HudiTable:
        return made.table.with_context(**made.setting(**options))

    for ts in range(1, 8):
        made.upsert(ts, "p/a", "p/b", "q/c")
        if made.table.config.is_mor and ts % 2:
            compact(here())
    roll_back_instant(here(), made.table.timeline.completed().data().last().requested_time)
    made.upsert(8, "p/a")
    clean(here(**LEAST))
    assert archive(here(**LEAST)).instants
    LocalWriter(here(**INDEXED)).upsert(made.frame(9, "p/a", "q/c"))
    create_savepoint(here())
    if made.table.config.is_mor:
        made.upsert(10, "q/c")
        schedule_compaction(here(compact__inline__max__delta__commits=1))
        made.upsert(11, "q/c")
    assert made.table.metadata_table() is not None
    return made


def checked(made: Any, **how: Any) -> list[FileFinding]:
    """As the command checks a folder."""
    return fsck_at(TableContext(LocalStorage(str(made.folder))), **how)[1]


def repaired(made: Any, **how: Any) -> list[Repair]:
    context = TableContext(LocalStorage(str(made.folder)), **made.setting())
    return repair(context, fsck_at(context, **how)[1], how.get("properties"))


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def garbled(data: bytes) -> bytes:
    return random.Random(len(data)).randbytes(len(data))


WAYS: dict[str, Callable[[bytes], bytes]] = {"cut": cut, "garbled": garbled, "empty": lambda _data: b""}


def timeline_files(made: Any) -> list[Path]:
    """The files of the active timeline that have content."""
    folder = made.folder / made.table.layout.folder
    return [each for each in sorted(folder.iterdir()) if made.table.layout.parse(each.name) and each.stat().st_size]


@pytest.mark.parametrize("way", WAYS)
def test_each_file_of_the_timeline(made: Any, way: str) -> None:
    """Of all actions, in the encoding of each layout: the file is named, and no other check ends by it."""
    assert checked(made) == []
    lost = made.table.view(metadata=False).slices("q")[0]
    lost_path = lost.log_files[-1].path if lost.log_files else lost.base_file.path
    (made.folder / lost_path).unlink()
    for file in timeline_files(made):
        data = file.read_bytes()
        file.write_bytes(WAYS[way](data))
        instant = made.table.layout.parse(file.name)
        found = {finding.path: finding.problem for finding in checked(made)}
        named = str(file.relative_to(made.folder))
        if way != "empty" or instant.is_completed or instant.action == "compaction":
            assert found.get(named) in (Problem.COMMIT, Problem.PLAN), f"{file.name}: {found}"
        if not instant.is_completed or named not in found:
            assert found.get(lost_path) is Problem.MISSING, f"{file.name}: {found}"
        file.write_bytes(data)
    assert {finding.path for finding in checked(made)} == {lost_path}


@pytest.mark.parametrize("way", ["cut", "garbled", "lost"])
def test_each_file_of_the_archive(made: Any, way: str) -> None:
    folder = made.folder / made.table.layout.archive_folder
    files = [*folder.glob("*.parquet"), *folder.glob(".commits_.archive.*"), *folder.glob("manifest_*")]
    assert files
    for file in files:
        data = file.read_bytes()
        if way == "lost":
            if "archive" in file.name or "manifest" in file.name:
                continue  # nothing else names it
            file.unlink()
        else:
            file.write_bytes(WAYS[way](data))
        is_last = not file.name.startswith("manifest") or file == max(files, key=lambda each: each.name)
        problems = {finding.problem for finding in checked(made)}
        assert problems == {Problem.ARCHIVE} or not is_last, file.name
        file.write_bytes(data)
    assert checked(made) == []


def data_files(made: Any, pattern: str) -> list[Path]:
    return [each for name in "pq" for each in sorted((made.folder / name).glob(pattern))]


def flipped_in_each_page(file: Path) -> Iterator[bytes]:
    """The file's bytes with one of them changed, in the middle of each column chunk in turn."""
    data, metadata = file.read_bytes(), pq.read_metadata(file)
    for group in range(metadata.num_row_groups):
        for at in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(at)
            start = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
            # behind the header of the page, whose bytes have no checksum
            place = start + chunk.total_compressed_size - 1
            yield data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]


def test_a_byte_of_any_page(made: Any) -> None:
    """Only --deep reads the pages, and it names each of them."""
    file = data_files(made, "*.parquet")[-1]
    data = file.read_bytes()
    for damaged in flipped_in_each_page(file):
        file.write_bytes(damaged)
        found = checked(made, deep=True)
        named = [each for each in found if each.path == str(file.relative_to(made.folder))]
        assert [each.problem for each in named] == [Problem.DAMAGED], f"{file.name}: {found}"
        assert named[0].detail.startswith("column ")
    assert checked(made) == []
    file.write_bytes(data)
    assert checked(made, deep=True) == []


@pytest.mark.parametrize("where", [0, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("made", [TableType.MERGE_ON_READ], ids=["mor"], indirect=True)
def test_log_files(made: Any, where: float) -> None:
    """Each of their bytes belongs to a block, whose lengths, versions and content are decoded."""
    for file in data_files(made, ".*.log.*")[-2:]:
        data = file.read_bytes()
        file.write_bytes(data[: int(len(data) * where)])
        found = checked(made, deep=True)
        named = {each.problem for each in found if each.path == str(file.relative_to(made.folder))}
        assert named & {Problem.DAMAGED, Problem.SIZE, Problem.TORN}, f"{file.name}: {found}"
        at = int(len(data) * where)
        file.write_bytes(data[:at] + b"\xff" * 12 + data[at + 12 :])
        found = checked(made, deep=True)
        file.write_bytes(data)
        named = {each.problem for each in found if each.path == str(file.relative_to(made.folder))}
        assert named & {Problem.DAMAGED, Problem.TORN}, f"{file.name}: {found}"


# -- settings ----------------------------------------------------------------------------------------------------------


SETTINGS = (
    *("name", "type", "version", "record_key_fields", "partition_fields", "ordering_fields", "merge_mode"),
    *("key_generator", "hive_style", "populate_meta_fields", "timezone", "drop_partition_columns"),
)


MERGING = {
    6: {
        "hoodie.table.precombine.field": "ts",
        "hoodie.compaction.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    },
    8: {"hoodie.table.precombine.field": "ts", "hoodie.record.merge.mode": "EVENT_TIME_ORDERING"},
    9: {"hoodie.table.ordering.fields": "ts", "hoodie.record.merge.mode": "EVENT_TIME_ORDERING"},
}


def settings_file(made: Any) -> Path:
    return made.folder / ".hoodie" / "hoodie.properties"


@pytest.mark.parametrize("way", ["cut", "garbled", "empty", "lost"])
def test_settings_come_back_from_their_backup(made: Any, way: str) -> None:
    """An update that Hudi was interrupted in leaves the file beside its backup."""
    file, rows = settings_file(made), made.rows()
    whole = file.read_bytes()
    file.with_name("hoodie.properties.backup").write_bytes(whole)
    if way == "lost":
        file.unlink()
    else:
        file.write_bytes(WAYS[way](whole))
    assert {each.problem for each in checked(made)} == {Problem.SETTINGS, Problem.BACKUP}
    assert all(each.done for each in repaired(made))
    assert parse_properties(file.read_bytes()) == parse_properties(whole)
    assert checked(made) == []
    assert made.rows() == rows


@pytest.mark.parametrize("way", ["cut", "garbled", "empty", "lost"])
def test_settings_come_back_from_what_the_table_states(made: Any, way: str) -> None:
    """But for the column that orders rows, which nothing states: its administrator does."""
    file, before = settings_file(made), made.table.config
    rows = made.rows()
    if way == "lost":
        file.unlink()
    else:
        file.write_bytes(WAYS[way](file.read_bytes()))
    known = MERGING[before.version]
    found, left = checked(made), file.read_bytes() if file.exists() else None
    assert {each.problem for each in found} == {Problem.SETTINGS}
    if way != "cut":  # else lines that were not cut have it
        assert any(all(key in each.detail for key in known) for each in found)
        assert not any(each.done for each in repaired(made))
        assert (file.read_bytes() if file.exists() else None) == left
    assert all(each.done for each in repaired(made, properties=known))
    after = made.table.config
    for name in SETTINGS:
        assert getattr(after, name) == getattr(before, name), name
    assert set(after.metadata_partitions) == set(before.metadata_partitions)
    assert checked(made, deep=True) == []
    assert made.rows() == rows
    made.upsert(20, "p/a", "new/x")
    assert made.rows() == {**rows, "p/a": 20, "new/x": 20}


def test_settings_that_were_cut_behind_a_line_are_noticed(made: Any) -> None:
    """Without its checksum, which comes last, the file may lack others: readers take what is left for all there is."""
    file = settings_file(made)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for line in lines if not line.startswith(b"hoodie.table.checksum")))
    assert {each.problem for each in checked(made)} == {Problem.SETTINGS}
    assert all(each.done for each in repaired(made, properties=MERGING[made.table.config.version]))
    assert checked(made) == []


def test_a_backup_that_was_left(made: Any) -> None:
    """By an update that was interrupted before it deleted it, whatever is in it."""
    backup = settings_file(made).with_name("hoodie.properties.backup")
    for content in (settings_file(made).read_bytes(), b"hoodie.table.na"):
        backup.write_bytes(content)
        assert {each.problem for each in checked(made)} == {Problem.BACKUP}
        assert all(each.done for each in repaired(made))
        assert not backup.exists()
    assert checked(made) == []


def test_a_folder_without_a_timeline_is_no_table(made: Any, tmp_path: Path) -> None:
    (tmp_path / "empty" / ".hoodie").mkdir(parents=True)
    for folder in (tmp_path / "empty", tmp_path / "nothing", made.folder / "p"):
        with pytest.raises(NotATableError):
            fsck_at(TableContext(LocalStorage(str(folder))))


# -- what is repaired, and what is not ---------------------------------------------------------------------------------


def by_problem(repairs: list[Repair]) -> dict[Problem, bool]:
    return {each.finding.problem: each.done for each in repairs}


def test_a_metafile_is_written_again(made: Any) -> None:
    rows = made.rows()
    (made.folder / "q" / ".hoodie_partition_metadata").unlink()
    assert {each.problem for each in checked(made)} == {Problem.METAFILE}
    assert by_problem(repaired(made)) == {Problem.METAFILE: True}
    assert checked(made) == []
    assert made.rows() == rows == made.rows(metadata=False)


def test_a_damaged_metadata_table_is_made_again(made: Any) -> None:
    rows = made.rows()
    own = made.folder / ".hoodie" / "metadata"
    layout = made.table.layout.folder
    commits = [each for each in (own / layout).iterdir() if each.name.endswith("deltacommit") and each.stat().st_size]
    files = [each for each in (own / "files").iterdir() if "files-" in each.name]
    damages: list[Callable[[], object]] = [
        lambda: commits[-1].write_bytes(garbled(commits[-1].read_bytes())),
        lambda: max(files).unlink(),
        lambda: shutil.rmtree(own),
        lambda: (own / ".hoodie" / "hoodie.properties").write_bytes(b"\x00"),
    ]
    saved = made.folder.parent / "saved"
    shutil.copytree(made.folder, saved)
    for damage in damages:
        shutil.rmtree(made.folder)
        shutil.copytree(saved, made.folder)
        if made.table.format.metadata.first_when_quiet:
            finish_compactions(made)
        commits[:] = sorted(each for each in (own / layout).iterdir() if each.name.endswith("deltacommit"))
        files[:] = [each for each in (own / "files").iterdir() if "files-" in each.name]
        damage()
        assert {each.problem for each in checked(made)} == {Problem.METADATA}
        assert by_problem(repaired(made)) == {Problem.METADATA: True}
        assert checked(made, deep=True) == []
        assert made.table.metadata_table() is not None
        assert made.rows() == rows


def finish_compactions(made: Any) -> None:
    """A metadata table of this version is made only while nothing is pending."""
    execute_pending_compactions(made.table.with_context(**made.setting()))


def test_a_metadata_table_is_not_made_again_from_fewer_files(made: Any) -> None:
    """It lists the file that is lost, so that reads fail: rebuilt it would hide that rows are missing."""
    lost = made.table.view(metadata=False).slices("q")[0]
    path = lost.log_files[-1].path if lost.log_files else lost.base_file.path
    (made.folder / path).unlink()
    found = repaired(made, metadata=True)
    assert by_problem(found) == {Problem.MISSING: False, Problem.METADATA: False}
    with pytest.raises(SkepError, match=re.escape(path.rpartition("/")[2])):
        made.rows()


def test_files_of_failed_writes(made: Any) -> None:
    """What is pending is rolled back; what a rollback names is deleted; a file of a write that nothing names stays."""
    rows = made.rows()
    undone = next(iter(made.table.timeline.completed().of(Action.ROLLBACK)))
    (target,) = made.table.plan(undone).commits_rollback
    base = data_files(made, "*.parquet")[0]
    unknown = str(int(target) + 1)
    own = base.name.rpartition("_")[0]
    for time in (target, unknown):
        (base.parent / f"{own}_{time}.parquet").write_bytes(base.read_bytes())
    found = {each.finding.path: each.done for each in repaired(made)}
    assert found == {f"{base.parent.name}/{own}_{time}.parquet": time == target for time in (target, unknown)}
    (base.parent / f"{own}_{unknown}.parquet").unlink()
    made.upsert(30, "p/a", "r/new")
    made.path_of(made.table.timeline.completed().data().last()).unlink()
    assert {each.problem for each in checked(made)} >= {Problem.LEFTOVER}
    assert by_problem(repaired(made))[Problem.LEFTOVER]
    assert made.rows() == rows


def test_a_plan_that_began_nothing_is_deleted(made: Any) -> None:
    rows = made.rows()
    table = made.table.with_context(**made.setting(**LEAST))
    assert schedule_clean(table) is not None
    (pending,) = made.table.timeline.pending().of(Action.CLEAN)
    made.path_of(pending).write_bytes(b"nothing")
    assert {each.problem for each in checked(made)} == {Problem.PLAN}
    assert by_problem(repaired(made)) == {Problem.PLAN: True}
    assert checked(made) == []
    assert made.rows() == rows


def test_what_can_not_be_repaired_is_left_with_advice(made: Any) -> None:
    commit = made.table.timeline.completed().data().last()
    made.path_of(commit).write_bytes(b"nothing")
    before = {each: each.read_bytes() for each in made.folder.rglob("*") if each.is_file()}
    (done,) = repaired(made)
    assert (done.finding.problem, done.done) == (Problem.COMMIT, False)
    assert "savepoint" in done.detail
    assert {each: each.read_bytes() for each in made.folder.rglob("*") if each.is_file()} == before


def test_a_change_of_version_that_was_interrupted(made: Any) -> None:
    """Hudi moves one instant after the other: what is left looks like a shorter timeline. Only its writer can go on."""
    if made.table.config.version != 6:
        return
    folder = made.folder / ".hoodie" / "timeline"
    folder.mkdir()
    (folder / "20300101000000000_20300101000001000.commit").write_bytes(b"moved")
    assert Problem.VERSION in {each.problem for each in checked(made)}
    before = {each: each.read_bytes() for each in made.folder.rglob("*") if each.is_file()}
    assert not any(each.done for each in repaired(made))
    assert {each: each.read_bytes() for each in made.folder.rglob("*") if each.is_file()} == before


def test_what_completes_during_a_check_is_no_finding(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean deletes files of the snapshot that is being checked: it is checked once more."""
    listed = LocalStorage.list_prefix
    waiting = [
        lambda: made.upsert(40, "p/a", "p/b", "q/c"),
        lambda: clean(made.table.with_context(**made.setting(**LEAST))),
    ]

    def list_prefix(self: LocalStorage, path: str, **how: Any) -> Any:
        monkeypatch.undo()
        while waiting:
            waiting.pop(0)()
        return listed(self, path, **how)

    monkeypatch.setattr(LocalStorage, "list_prefix", list_prefix)
    assert checked(made) == []
    assert not waiting


def test_keys_that_look_ups_pass_over(made: Any) -> None:
    """The footer of one file is that of another: sizes and rows agree, and look-ups by key do not find its key."""
    newest = {slice_.base_file.path for slice_ in made.table.view(metadata=False).slices("p")}
    path = made.folder / min(newest)
    rows, metadata = pq.read_table(path), pq.read_metadata(path).metadata
    other = BloomFilter.parse(build_bloom(pa.array(["z"])).to_base64(), "DYNAMIC_V0").to_base64()
    entries = {**metadata, b"org.apache.hudi.bloomfilter": other, b"hoodie_min_record_key": b"y"}
    with pq.ParquetWriter(path, rows.schema.remove_metadata(), store_schema=False) as file:
        file.write_table(rows)
        file.add_key_value_metadata({key: text for key, text in entries.items() if key != b"ARROW:schema"})
    found = [each for each in checked(made, deep=True) if each.problem is Problem.KEYS]
    assert len(found) == 2, found
    assert all(each.path == min(newest) for each in found)
    assert not [each for each in checked(made) if each.problem is Problem.KEYS]
