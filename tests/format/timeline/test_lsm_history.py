"""The history of layout 2: files and manifests as Hudi writes them, levels that merge, and what a crash leaves."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.errors import FormatError, StorageError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.layout import layout_2
from skep_format.timeline.lsm_archive import LsmArchive
from skep_format.timeline.lsm_files import HistoryManifest, current_manifest
from skep_format.timeline.lsm_history import LsmHistory
from skep_format.timeline.lsm_rows import HistoryRow
from skep_format.timeline.metadata import CommitMetadata

FOLDER = "history"


def t(number: int) -> InstantTime:
    return InstantTime(f"20261121{number:09d}")


def instant(number: int, action: Action = Action.COMMIT, *, lasts: int = 1) -> Instant:
    return Instant(t(number), action, State.COMPLETED, CompletionTime(t(number + lasts)))


def content(number: int) -> CommitMetadata:
    return CommitMetadata(extra_metadata={"number": str(number), "text": "x" * 50})


def rows(instants: Sequence[Instant]) -> list[HistoryRow]:
    encode = layout_2().encode_commit
    return [HistoryRow(each, encode(content(int(each.requested_time[8:])))) for each in instants]


def history(folder: Path | LocalStorage, **how: Any) -> LsmHistory:
    storage = folder if isinstance(folder, LocalStorage) else LocalStorage(str(folder))
    return LsmHistory(storage, FOLDER, **how)


def add(to: LsmHistory, *numbers: int) -> list[Instant]:
    instants = [instant(number) for number in numbers]
    missing = to.missing(instants)
    if missing:
        to.add(missing, rows(missing))
    return instants


def read(folder: Path) -> LsmArchive:
    return LsmArchive(LocalStorage(str(folder)), FOLDER)


def numbers(folder: Path) -> list[int]:
    """What is archived, each with its own content."""
    archive = read(folder)
    for each in archive.instants():
        assert archive.completed_content(each) == content(int(each.requested_time[8:]))
        assert archive.completion_time_of(each.requested_time) == each.completion_time
    return [int(each.requested_time[8:]) for each in archive.instants()]


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / FOLDER).iterdir())


def manifest(folder: Path) -> HistoryManifest:
    return current_manifest(LocalStorage(str(folder)), FOLDER)


# -- the files ---------------------------------------------------------------------------------------------------------


def test_a_file_has_hudis_schema_footer_and_codec(golden: Path, tmp_path: Path) -> None:
    """Footer and columns are compared with those of a file of Hudi."""
    theirs = next((golden / "1.1.1/cow_archive/table/.hoodie/timeline/history").glob("*.parquet"))
    path = history(tmp_path).add([instant(1)], rows([instant(1)]))
    ours = pq.read_metadata(tmp_path / path)
    expected = pq.read_metadata(theirs)
    for at in range(len(expected.schema)):
        column, wanted = ours.schema.column(at), expected.schema.column(at)
        for what in ("name", "physical_type", "logical_type", "max_definition_level", "max_repetition_level"):
            assert str(getattr(column, what)) == str(getattr(wanted, what)), wanted.name
    assert ours.row_group(0).column(0).compression == expected.row_group(0).column(0).compression == "GZIP"
    assert {*ours.metadata} == {*expected.metadata}
    assert ours.metadata[b"writer.model.name"] == expected.metadata[b"writer.model.name"]
    schemas = [json.loads(each.metadata[b"parquet.avro.schema"]) for each in (ours, expected)]
    assert schemas[0] == schemas[1]


def test_names_manifests_and_the_version_are_hudis(golden: Path, tmp_path: Path) -> None:
    to = history(tmp_path)
    add(to, 3, 1, 2)
    add(to, 4)
    assert names(tmp_path) == [
        "20261121000000001_20261121000000003_0.parquet",
        "20261121000000004_20261121000000004_0.parquet",
        "_version_",
        "manifest_1",
        "manifest_2",
    ]
    assert (tmp_path / FOLDER / "_version_").read_bytes() == b"2"
    ours = (tmp_path / FOLDER / "manifest_2").read_text()
    sizes = {file["fileName"]: file["fileLen"] for file in json.loads(ours)["files"]}
    assert sizes == {name: (tmp_path / FOLDER / name).stat().st_size for name in names(tmp_path)[:2]}
    stored = golden / "1.1.1/cow_archive/table/.hoodie/timeline/history"
    theirs = current_manifest(LocalStorage(str(stored.parent)), "history")
    assert theirs.encode().split() == (stored / "manifest_4").read_bytes().split()
    assert numbers(tmp_path) == [1, 2, 3, 4]


def test_rows_lie_in_the_order_of_time(tmp_path: Path) -> None:
    to = history(tmp_path)
    add(to, *random.sample(range(1, 50), 49))
    (file,) = manifest(tmp_path).files
    assert pq.read_table(tmp_path / FOLDER / file.name).column(0).to_pylist() == [t(at) for at in range(1, 50)]


def test_an_instant_without_a_completion_time_completed_when_it_was_requested(tmp_path: Path) -> None:
    """Hudi's readers fail on a null there."""
    done = Instant(t(1), Action.COMMIT, State.COMPLETED)
    history(tmp_path).add([done], rows([done]))
    assert read(tmp_path).completion_time_of(t(1)) == t(1)


def test_large_contents_make_row_groups_and_one_is_read_for_one_instant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep_format.timeline.lsm_rows._GROUP_BYTES", 20_000)
    to = history(tmp_path, files_per_level=2)
    add(to, *range(100))
    add(to, *range(100, 120))
    to.merge()
    (file,) = manifest(tmp_path).files
    footer = pq.read_metadata(tmp_path / FOLDER / file.name)
    assert footer.num_row_groups > 5
    archive = read(tmp_path)
    groups: list[int] = []
    original = archive._read_group
    monkeypatch.setattr(archive, "_read_group", lambda file, at: groups.append(at) or original(file, at))
    for number in range(40, 50):
        assert archive.completed_content(instant(number)) == content(number)
    assert len(groups) == len(set(groups)) <= 4


# -- levels ------------------------------------------------------------------------------------------------------------


def test_full_levels_merge_one_into_the_next(tmp_path: Path) -> None:
    to = history(tmp_path, files_per_level=3)
    for number in range(1, 28):
        add(to, number)
        to.merge()
        assert numbers(tmp_path) == list(range(1, number + 1))
        levels = [file.level for file in manifest(tmp_path).files]
        assert all(levels.count(level) < 3 for level in levels)
    (file,) = manifest(tmp_path).files
    assert file.name == "20261121000000001_20261121000000027_3.parquet"


def test_old_states_stay_readable_for_a_while_and_their_files_with_them(tmp_path: Path) -> None:
    to = history(tmp_path, files_per_level=3)
    for number in range(1, 12):
        add(to, number)
        to.merge()
        kept = [name for name in names(tmp_path) if name.startswith("manifest")]
        newest = manifest(tmp_path).number
        assert len(kept) <= 3 + 2
        for name in kept:
            (tmp_path / FOLDER / "_version_").write_text(name.removeprefix("manifest_"))
            assert numbers(tmp_path) == list(range(1, numbers(tmp_path)[-1] + 1))
        (tmp_path / FOLDER / "_version_").write_text(str(newest))
        listed = {file["fileName"] for n in kept for file in json.loads((tmp_path / FOLDER / n).read_text())["files"]}
        assert {name for name in names(tmp_path) if name.endswith(".parquet")} == listed


def test_files_that_are_large_together_are_not_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = history(tmp_path, files_per_level=3)
    for number in range(1, 5):
        add(to, number)
    size = manifest(tmp_path).files[0].size_bytes
    monkeypatch.setattr("skep_format.timeline.lsm_history._MERGED_BYTES", size)
    to.merge()
    assert [file.level for file in manifest(tmp_path).files] == [0, 0, 0, 0]
    monkeypatch.setattr("skep_format.timeline.lsm_history._MERGED_BYTES", 2 * size + size // 2)
    to.merge()
    assert sorted(file.level for file in manifest(tmp_path).files) == [0, 0, 1]
    assert numbers(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(5))
def test_overlapping_unsorted_and_repeated_rows_merge_into_order(seed: int, tmp_path: Path, monkeypatch: Any) -> None:
    """As archivers that crashed, and upgrades from version 6, leave them."""
    monkeypatch.setattr("skep_format.timeline.lsm_rows._GROUP_ROWS", 7)
    dice = random.Random(seed)
    to = history(tmp_path, files_per_level=4)
    for last in range(60, 64):
        found = [instant(number) for number in (*dice.sample(range(60), 25), last)]
        to.add(found, rows(found))
    archived = set(read(tmp_path).instants())
    to.merge()
    (file,) = manifest(tmp_path).files
    merged = pq.read_table(tmp_path / FOLDER / file.name).column("instantTime").to_pylist()
    assert merged == sorted(each.requested_time for each in archived)
    assert numbers(tmp_path) == sorted(int(each.requested_time[8:]) for each in archived)


def test_a_file_of_an_upgrade_is_merged_whatever_its_name_promises(tmp_path: Path) -> None:
    """`<last>_<first>`; after a Hudi writer merged it the range of the name is too narrow for its rows."""
    to = history(tmp_path, files_per_level=2)
    add(to, *range(10, 20))
    whole = numbers(tmp_path)
    for low, high in ((19, 10), (15, 19)):
        name = f"{t(low)}_{t(high)}_0.parquet"
        data = (tmp_path / FOLDER / manifest(tmp_path).files[0].name).read_bytes()
        (tmp_path / FOLDER / name).write_bytes(data)
        (tmp_path / FOLDER / "manifest_1").write_text(json.dumps({"files": [{"fileName": name, "fileLen": len(data)}]}))
        assert numbers(tmp_path) == whole
    add(to, 30)
    to.merge()
    assert numbers(tmp_path) == [*whole, 30]


# -- what is read ------------------------------------------------------------------------------------------------------


class Opened(LocalStorage):
    """Records which history files are opened."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    def open_input(self, path: str, **how: Any) -> pa.NativeFile:
        self.opened.append(path.rpartition("/")[2])
        return super().open_input(path, **how)


def test_a_completion_time_opens_the_one_file_of_its_range(tmp_path: Path) -> None:
    to = history(tmp_path)
    for start in range(0, 50, 10):
        add(to, *range(start, start + 10))
    storage = Opened(str(tmp_path))
    archive = LsmArchive(storage, FOLDER)
    assert archive.completion_time_of(t(23)) == t(24)
    assert archive.completion_time_of(t(27)) == t(28)
    assert set(storage.opened) == {f"{t(20)}_{t(29)}_0.parquet"}
    assert len(storage.opened) == 2  # the footer, and the times of a row group


def test_a_range_is_read_from_the_files_whose_instants_reach_it(tmp_path: Path) -> None:
    """By completion times too: a write that was requested long before may have completed last."""
    to = history(tmp_path)
    slow = instant(5, lasts=40)
    to.add([slow], rows([slow]))
    for start in range(10, 50, 10):
        add(to, *range(start, start + 10))
    storage = Opened(str(tmp_path))
    archive = LsmArchive(storage, FOLDER)
    found = archive.instants(t(42))
    assert [int(each.requested_time[8:]) for each in found] == [5, *range(41, 50)]
    # Of all files the footer is opened, once: it has the statistics. Of those that reach the range the times are read.
    assert len(storage.opened) == 5 + 2
    assert archive.reopened().instants(t(43))[0] == slow
    assert len(storage.opened) == 5 + 2


def test_a_text_is_looked_for_in_the_bytes(tmp_path: Path) -> None:
    to = history(tmp_path)
    add(to, *range(20))
    compressed = instant(30)
    data = layout_2().encode_commit(content(30)).replace(b"\x08null", b"\x0edeflate")
    to.add([compressed], [HistoryRow(compressed, data)])
    assert read(tmp_path).holding("number") == read(tmp_path).instants()
    assert read(tmp_path).holding("nothing of the kind") == (compressed,)  # its bytes do not show what they are


def test_a_reader_goes_on_where_an_archiver_has_merged_and_deleted_its_files(tmp_path: Path) -> None:
    to = history(tmp_path, files_per_level=3, manifests_kept=1)
    for number in range(1, 3):
        add(to, number)
    slow = read(tmp_path)
    assert slow.completion_time_of(t(1)) == t(2)
    for number in range(3, 9):
        add(to, number)
        to.merge()
    assert not (tmp_path / FOLDER / f"{t(2)}_{t(2)}_0.parquet").exists()
    assert slow.completion_time_of(t(2)) == t(3)
    assert slow.completed_content(instant(1)) == content(1)


# -- crashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"dies": True}, {"dies": True, "after": True}], ids=["fails", "dies", "after"])
def test_a_fault_at_any_call_leaves_each_instant_once(how: dict[str, bool], tmp_path: Path) -> None:
    """Adding, merging two levels and cleaning: readers see the old state or a new one, the next archiver goes on."""
    import shutil

    from faulty_storage import FaultyStorage

    before = tmp_path / "before"
    to = history(before, files_per_level=2)
    for number in range(1, 4):
        add(to, number)
        to.merge()
    assert sorted(file.level for file in manifest(before).files) == [0, 1]
    at, done = 0, False
    while not done:
        at += 1
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(before, run)
        storage = FaultyStorage(str(run), at, **how)
        try:
            add(history(storage, files_per_level=2), 4)
            history(storage, files_per_level=2).merge()
        except StorageError:
            assert numbers(run) in ([1, 2, 3], [1, 2, 3, 4]), storage.calls[-1]
        done = not storage.hit
        again = history(run, files_per_level=2)
        add(again, 4, 5)
        again.merge()
        assert numbers(run) == [1, 2, 3, 4, 5], storage.calls
        listed = [json.loads(path.read_text()) for path in (run / FOLDER).glob("manifest_*")]
        known = {file["fileName"] for each in listed for file in each["files"]}
        assert {path.name for path in (run / FOLDER).glob("*.parquet")} == known, storage.calls
    assert at > 20


def test_leftovers_of_a_crash_are_replaced(tmp_path: Path) -> None:
    to = history(tmp_path)
    add(to, 1)
    (tmp_path / FOLDER / f"{t(2)}_{t(3)}_0.parquet").write_bytes(b"PAR1 cut")
    (tmp_path / FOLDER / "manifest_2").write_bytes(b'{"files": [')
    assert numbers(tmp_path) == [1]
    add(to, 2, 3)
    assert numbers(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("version", [None, b"", b"x", b"-3", b"77"])
def test_a_lost_version_file_is_replaced(version: bytes | None, tmp_path: Path) -> None:
    to = history(tmp_path)
    add(to, 1)
    add(to, 2)
    (tmp_path / FOLDER / "_version_").unlink()
    if version is not None:
        (tmp_path / FOLDER / "_version_").write_bytes(version)
    add(to, 3)
    assert (tmp_path / FOLDER / "_version_").read_bytes() == b"3"
    assert numbers(tmp_path) == [1, 2, 3]


def test_the_name_of_a_live_file_is_never_written_to(tmp_path: Path) -> None:
    """A Hudi writer may have left an instant out of the file of its range."""
    to = history(tmp_path)
    add(to, 1, 3)
    missing = [instant(1, Action.CLEAN), instant(3, Action.CLEAN)]
    path = to.add(missing, [HistoryRow(each, b"") for each in missing])
    assert path == f"{FOLDER}/{t(1)}_{t(3)}_1.parquet"
    assert len(read(tmp_path).instants()) == 4


def test_a_damaged_manifest_stops_the_archiver_before_it_forgets_instants(tmp_path: Path) -> None:
    to = history(tmp_path)
    add(to, 1)
    (tmp_path / FOLDER / "manifest_1").write_bytes(b"{}")
    before = names(tmp_path)
    with pytest.raises(FormatError, match="manifest_1"):
        add(to, 2)
    assert names(tmp_path) == before
