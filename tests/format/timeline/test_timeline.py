"""The timeline as readers and writers ask it: order, states, where it starts, completion times, archived instants."""

from __future__ import annotations

import json
import pickle
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import FormatError
from skep_format.instant_time import BEFORE_ALL, CompletionTime, InstantTime
from skep_format.storage import FileStatus, LocalStorage, local
from skep_format.table_config import TableConfig, TimelineZone
from skep_format.timeline.archive import ArchivedLog
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.layout import TimelineLayout, layout_1, layout_2
from skep_format.timeline.lsm_archive import LsmArchive
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.plans import CleanMetadata
from skep_format.timeline.timeline import Timeline, TimelineFiles, load_timeline
from skep_format.versions import format_of
from skep_table.table import HudiTable

V6 = TableConfig(name="t", timezone=TimelineZone.UTC)
V9 = TableConfig(name="t", version=9, timezone=TimelineZone.UTC)


def loaded(storage: LocalStorage, config: TableConfig) -> Timeline:
    return load_timeline(storage, format_of(config).timeline_layout(config), config.timezone)


def load(tmp_path: Path, config: TableConfig, *names: str) -> Timeline:
    storage = LocalStorage(str(tmp_path))
    folder = ".hoodie" if config.version == 6 else ".hoodie/timeline"
    for name in names:
        storage.replace_atomic(f"{folder}/{name}", b"")
    return loaded(storage, config)


def t(number: int) -> InstantTime:
    return InstantTime(f"202611210000000{number:02d}")


def done(number: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(t(number), action, State.COMPLETED)


def pending(number: int, action: Action = Action.COMMIT, state: State = State.INFLIGHT) -> Instant:
    return Instant(t(number), action, state)


def test_the_furthest_state_of_each_instant_counts(tmp_path: Path) -> None:
    timeline = load(
        tmp_path,
        V6,
        *(f"{t(1)}{ending}" for ending in (".commit", ".inflight", ".commit.requested")),
        *(f"{t(2)}.compaction{ending}" for ending in (".requested", ".inflight")),
        f"{t(2)}.commit",
        *(f"{t(3)}.compaction{ending}" for ending in (".requested", ".inflight")),
        f"{t(4)}.deltacommit.requested",
        f"{t(1)}.savepoint",
        f"{t(1)}.savepoint.inflight",
        "hoodie.properties",
    )
    assert timeline.instants == (
        done(1),
        done(1, Action.SAVEPOINT),
        done(2),
        pending(3, Action.COMPACTION),
        pending(4, Action.DELTA_COMMIT, State.REQUESTED),
    )
    assert timeline.data().instants == (done(1), done(2), pending(4, Action.DELTA_COMMIT, State.REQUESTED))
    assert timeline.completed().data().instants == (done(1), done(2))
    assert [instant.requested_time for instant in timeline.pending()] == [t(3), t(4)]
    assert timeline.last() == timeline.instants[-1]
    assert timeline.until(t(2)).last() == done(2)
    assert timeline.of(Action.SAVEPOINT).instants == (done(1, Action.SAVEPOINT),)
    assert timeline.contains(t(3))
    assert not timeline.completed().contains(t(3))


def test_a_compaction_of_layout_2_is_one_instant_with_its_commit(tmp_path: Path) -> None:
    names = [f"{t(1)}.compaction.requested", f"{t(1)}_{t(2)}.commit", f"{t(3)}.clustering.inflight"]
    timeline = load(tmp_path, V9, *names)
    assert timeline.instants == (
        Instant(t(1), Action.COMMIT, State.COMPLETED, CompletionTime(t(2))),
        pending(3, Action.CLUSTERING),
    )


SHORT, LONG = f"{t(3)}"[:14], f"{t(3)}001"
TIMES = (t(1), t(2), SHORT, t(3), LONG, t(4))  # one is the beginning of the next, as in old and in metadata tables
ENDINGS = {
    6: (".commit", ".inflight", ".commit.requested", ".logcompaction.requested", ".clean", ".savepoint", ".x"),
    9: ("_{}.commit", "_{}.deltacommit", ".commit", ".inflight", ".logcompaction.requested", ".clean.inflight"),
}


@given(st.data())
@pytest.mark.parametrize("config", [V6, V9], ids=["6", "9"])
def test_by_an_earlier_timeline_it_is_the_same(config: TableConfig, data: st.DataObject) -> None:
    names = [f"{time}{ending.format(t(9))}" for time in TIMES for ending in ENDINGS[config.version]]
    some = st.sets(st.sampled_from([*names, "hoodie.properties", "timeline.moved", ".1.crc"]))
    layout = format_of(config).timeline_layout(config)
    with tempfile.TemporaryDirectory() as folder:
        storage = LocalStorage(folder)
        known = None
        for wanted in data.draw(st.lists(some, min_size=2, max_size=4)):
            for name in wanted:
                if not storage.exists(f"{layout.folder}/{name}"):
                    storage.replace_atomic(f"{layout.folder}/{name}", b"")
            for file in storage.list_folder(layout.folder).files:
                if file.name not in wanted:
                    storage.delete(file.path)
            fresh = loaded(storage, config)
            known = load_timeline(storage, layout, config.timezone, known=known)
            assert known.instants == fresh.instants
            assert known.files == fresh.files


def test_what_an_earlier_timeline_shows_is_not_found_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{t(number)}{ending}" for number in range(20) for ending in (".commit", ".inflight", ".commit.requested")]
    known = load(tmp_path, V6, *names)
    storage, layout = LocalStorage(str(tmp_path)), known.layout
    storage.replace_atomic(f".hoodie/{t(20)}.commit.requested", b"")
    parsed, looked_at = [], []
    monkeypatch.setattr(local, "FileStatus", lambda path, *facts: looked_at.append(path) or FileStatus(path, *facts))
    real = TimelineLayout.parse_name
    monkeypatch.setattr(TimelineLayout, "parse_name", lambda self, name: parsed.append(name) or real(self, name))
    now = load_timeline(storage, layout, V6.timezone, known=known)
    assert now.instants == (*known.instants, pending(20, state=State.REQUESTED))
    assert parsed == [f"{t(20)}.commit.requested"]
    assert looked_at == [f".hoodie/{t(20)}.commit.requested"]


def test_a_completion_that_was_not_listed_is_not_taken_for_listed(tmp_path: Path) -> None:
    known = load(tmp_path, V6, f"{t(1)}.commit", f"{t(2)}.inflight")
    after = known.completing(done(2))
    now = load_timeline(LocalStorage(str(tmp_path)), known.layout, V6.timezone, known=after)
    assert now.instants == known.instants


def test_a_pickled_timeline_leaves_its_listing_behind(tmp_path: Path) -> None:
    known = load(tmp_path, V6, f"{t(1)}.commit", f"{t(2)}.inflight")
    copy = pickle.loads(pickle.dumps(known))
    assert copy.instants == known.instants
    assert copy.files == replace(known.files, listed=(), instants=())


def test_completed_means_completed_or_older_than_the_timeline() -> None:
    """Format guide 10.1."""
    timeline = Timeline([done(3), pending(4), done(5), done(1, Action.CLEAN)], layout_1())
    assert timeline.first_time == t(3)  # a clean is no write
    assert [number for number in range(7) if timeline.is_completed_or_archived(t(number))] == [0, 1, 2, 3, 5]
    assert timeline.pending().is_completed_or_archived(t(5))  # a part of the timeline still knows the whole


def test_a_pending_write_holds_the_start_of_the_timeline() -> None:
    timeline = Timeline([pending(2), done(3)], layout_1())
    assert timeline.first_time == t(2)
    assert not timeline.is_completed_or_archived(t(2))


def test_savepoints_of_archived_commits_do_not_start_the_timeline() -> None:
    timeline = Timeline([done(1), done(1, Action.SAVEPOINT), done(5)], layout_1())
    assert timeline.first_time == t(5)
    assert timeline.is_completed_or_archived(t(3))
    assert timeline.is_completed_or_archived(t(1))
    only = Timeline([done(1), done(1, Action.SAVEPOINT)], layout_1())
    assert only.first_time == t(1)


def test_an_empty_timeline_has_nothing_committed() -> None:
    timeline = Timeline([], layout_1())
    assert timeline.first_time is None
    assert timeline.last() is None
    assert not timeline.is_completed_or_archived(t(1))


class FakeHistory:
    def instants(self, since: InstantTime = BEFORE_ALL) -> tuple[Instant, ...]:
        return (Instant(t(1), Action.COMMIT, State.COMPLETED, CompletionTime(t(2))),)

    def completion_time_of(self, requested_time: str) -> str | None:
        return {t(1): t(2)}.get(requested_time)

    def completed_content(self, instant: Instant) -> object | None:
        return None


def test_completion_times_come_from_names_then_history_then_the_time_itself() -> None:
    active = [
        Instant(t(5), Action.DELTA_COMMIT, State.COMPLETED, CompletionTime(t(7))),
        pending(6, Action.DELTA_COMMIT),
    ]
    timeline = Timeline(active, layout_2(), FakeHistory())
    times = {number: timeline.completion_time_of(t(number)) for number in (1, 3, 5, 6, 8)}
    assert times == {1: t(2), 3: t(3), 5: t(7), 6: None, 8: None}
    assert timeline.archived() == FakeHistory().instants()
    assert Timeline([done(5)], layout_1()).completion_time_of(t(5)) is None


def test_what_was_completed_in_the_manner_of_layout_1_completes_when_its_file_was_written(tmp_path: Path) -> None:
    timeline = load(tmp_path, V9, f"{t(1)}.commit")
    (instant,) = timeline.instants
    assert instant.completion_time is not None
    assert len(instant.completion_time) == 17
    assert instant.completion_time > t(1)
    assert timeline.layout.file_name(instant) == f"{t(1)}.commit"


def test_ten_thousand_commits_are_one_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".hoodie"
    folder.mkdir()
    for number in range(2_000):
        for ending in (".commit.requested", ".inflight", ".commit"):
            (folder / f"2026112100{number:07d}{ending}").touch()
    storage = LocalStorage(str(tmp_path))
    calls: list[str] = []
    original = storage.list_folder
    monkeypatch.setattr(storage, "list_folder", lambda path, **kw: calls.append(path) or original(path, **kw))
    monkeypatch.setattr(storage, "read", lambda path: pytest.fail(f"{path} was read"))
    assert len(loaded(storage, V6)) == 2_000
    assert calls == [".hoodie"]


# -- the history of layout 2 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.15.0", "1.0.2", "1.1.1"])
def test_golden_archives(golden: Path, version: str) -> None:
    case = golden / version / "cow_archive"
    table = HudiTable.open(case / "table")
    archived = table.timeline.archived()
    everything = [*archived, *table.timeline.completed().instants]
    facts = json.loads((case / "case.json").read_text())
    stated = [added for operation in facts["operations"] for added in operation.get("instants_added") or []]
    assert archived
    assert {(i.requested_time, i.completion_time, i.action.value) for i in everything} == {
        (added["instant"], added["completion"], added["action"]) for added in stated
    }
    for instant in archived:
        assert table.timeline.is_completed_or_archived(instant.requested_time)
        content = table.timeline.archive.completed_content(instant)  # type: ignore[union-attr]
        if instant.action is Action.COMMIT:
            assert table.commit_metadata(instant) == content
            assert isinstance(content, CommitMetadata)
            assert content.schema_json
            assert content.stats
            assert table.timeline.completion_time_of(instant.requested_time) == instant.completion_time
        else:
            assert isinstance(content, CleanMetadata)
            assert content.start_clean_time == instant.requested_time


def test_history_without_a_version_file_is_that_of_the_last_manifest(golden: Path, tmp_path: Path) -> None:
    source = golden / "1.1.1/cow_archive/table/.hoodie/timeline/history"
    shutil.copytree(source, tmp_path / "history")
    storage = LocalStorage(str(tmp_path))
    whole = LsmArchive(storage, "history").instants()
    for text in (None, b"x", b"77"):
        (tmp_path / "history/_version_").unlink(missing_ok=True)
        if text is not None:
            (tmp_path / "history/_version_").write_bytes(text)
        assert LsmArchive(storage, "history").instants() == whole
    (tmp_path / "history/_version_").write_bytes(b"2")
    assert LsmArchive(storage, "history").instants() == whole[: len(LsmArchive(storage, "history").instants())]
    assert LsmArchive(storage, "nowhere").instants() == ()


def test_history_files_may_be_named_from_their_last_instant_to_their_first(golden: Path, tmp_path: Path) -> None:
    """As an upgrade from version 6 leaves them."""
    folder = tmp_path / "history"
    shutil.copytree(golden / "1.1.1/cow_archive/table/.hoodie/timeline/history", folder)
    whole = LsmArchive(LocalStorage(str(tmp_path)), "history")
    contents = [whole.completed_content(instant) for instant in whole.instants()]
    for manifest in folder.glob("manifest_*"):
        text = manifest.read_text()
        for file in folder.glob("*.parquet"):
            first, last, level = file.stem.split("_")
            text = text.replace(file.name, f"{last}_{first}_{level}.parquet")
        manifest.write_text(text)
    for file in list(folder.glob("*.parquet")):
        first, last, level = file.stem.split("_")
        file.rename(folder / f"{last}_{first}_{level}.parquet")
    turned = LsmArchive(LocalStorage(str(tmp_path)), "history")
    assert turned.instants() == whole.instants()
    assert None not in contents
    assert [turned.completed_content(instant) for instant in turned.instants()] == contents


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"files": [{"fileName": "x"}]}', b"[1]"])
def test_a_damaged_manifest_is_named(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "history/manifest_3").write_bytes(damage)
    with pytest.raises(FormatError, match="manifest_3"):
        LsmArchive(LocalStorage(str(tmp_path)), "history").instants()


def test_damaged_history_files_are_named(golden: Path, tmp_path: Path) -> None:
    source = golden / "1.1.1/cow_archive/table/.hoodie/timeline/history"
    shutil.copytree(source, tmp_path / "history")
    victim = next((tmp_path / "history").glob("*.parquet"))
    whole = victim.read_bytes()
    for broken in (b"", whole[: len(whole) // 2], b"x" * 100):
        victim.write_bytes(broken)
        with pytest.raises(FormatError, match=victim.name):
            LsmArchive(LocalStorage(str(tmp_path)), "history").instants()
    victim.unlink()
    with pytest.raises(FormatError, match=victim.name):
        LsmArchive(LocalStorage(str(tmp_path)), "history").instants()


# -- the archive of layout 1 -------------------------------------------------------------------------------------------


def test_cut_and_damaged_archives_are_named_or_read_as_far_as_they_go(golden: Path, tmp_path: Path) -> None:
    source = sorted((golden / "0.15.0/cow_archive/table/.hoodie/archived").glob(".commits*"))[0]
    data = source.read_bytes()
    victim = tmp_path / "archived" / source.name
    victim.parent.mkdir()
    storage = LocalStorage(str(tmp_path))

    def instants(damaged: bytes) -> set[Instant]:
        victim.write_bytes(damaged)
        archive = ArchivedLog(storage, "archived")
        for instant in archive.instants():
            archive.completed_content(instant)
        return set(archive.instants())

    whole = instants(data)
    assert whole
    step = len(data) // 60
    for position in range(6, len(data), step):
        assert instants(data[:position]) <= whole  # a block that a crash cut is passed over
        flipped = bytearray(data)
        flipped[position] ^= 0xFF
        try:
            instants(bytes(flipped))
        except FormatError as error:
            assert source.name in str(error)  # noqa: PT017 - it need not fail
    with pytest.raises(FormatError, match=source.name):
        instants(b"nothing of the kind")


def test_the_newest_entry_of_an_archive_counts(golden: Path, tmp_path: Path) -> None:
    """A crash between archiving and deleting leaves entries twice; files are read in the order of their numbers."""
    source = golden / "0.15.0/cow_archive/table/.hoodie/archived"
    shutil.copytree(source, tmp_path / "archived")
    once = ArchivedLog(LocalStorage(str(tmp_path)), "archived").instants()
    shutil.copy(sorted(source.glob(".commits*"))[0], tmp_path / "archived/.commits_.archive.10_1-0-1")
    again = ArchivedLog(LocalStorage(str(tmp_path)), "archived")
    assert again.instants() == once
    assert again.completion_time_of(once[0].requested_time) is None
    assert again.completed_content(Instant(InstantTime("1"), Action.COMMIT, State.COMPLETED)) is None


@pytest.mark.parametrize("version", ["0.15.0", "1.1.1"])
def test_the_schema_of_a_commit_of_many_files_is_read_without_them(
    golden: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(golden / version / "cow_upsert" / "table")
    expected = HudiTable.open(path).schema()
    monkeypatch.setattr("skep_table.table._WHOLE_COMMIT_BYTES", 0)  # small commits are decoded as a whole
    monkeypatch.setattr("skep_format.timeline.codec.WriteStat", None)  # nothing makes one
    assert HudiTable.open(path).schema() == expected


@pytest.mark.parametrize(
    ("modified", "latest", "settled"),
    [
        (None, 9_999, False),
        (5_000, 6_900, False),  # storage that may state whole seconds
        (5_000, 7_000, True),
        (5_001, 5_100, False),
        (5_001, 5_201, True),
    ],
)
def test_when_a_change_of_the_settings_shows_in_the_time_of_their_file(
    modified: int | None, latest: int, settled: bool
) -> None:
    properties = None if modified is None else FileStatus("hoodie.properties", 10, modified)
    assert TimelineFiles(properties=properties, latest_ms=latest).properties_are_settled is settled
