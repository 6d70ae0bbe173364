"""Archiving: what leaves the timeline, what holds it back, in files that read back as Hudi's do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from skep_format.errors import OptionError, SkepError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.layout import TimelineLayout
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.write import request_instant
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive, plan_archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.undo.rollback import create_savepoint, roll_back_instant
from skep_table.table import HudiTable

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)

SMALL = {"keep__max__commits": 4, "keep__min__commits": 2, "cleaner__commits__retained": 1}


def add_commits(maker: Any, count: int) -> None:
    """Commits that wrote nothing, after all others."""
    layout = maker.table.layout
    extra = maker.table.commit_metadata(maker.table.timeline.data().completed().last()).extra_metadata
    for number in range(count):
        time = InstantTime(f"2031010101010{number:04d}")
        done = Instant(time, Action.COMMIT, State.COMPLETED, completed_at(layout, time))
        (maker.folder / layout.path(done)).write_bytes(layout.encode_commit(CommitMetadata(extra_metadata=extra)))


def completed_at(layout: TimelineLayout, time: InstantTime) -> CompletionTime | None:
    return CompletionTime(time) if layout.has_completion_times else None


def history(table: HudiTable) -> set[tuple[str, Action]]:
    """All completed instants, archived or active."""
    instants: list[Instant] = [*table.timeline.archived(), *table.timeline.completed()]
    return {(instant.requested_time, instant.action) for instant in instants}


def snapshot(table: HudiTable, **how: Any) -> list[str]:
    return sorted(map(repr, read(table, ReadRequest(**how)).to_arrow().to_pylist()))


def test_the_commits_past_the_limit_go(maker: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 5)]
    assert archive(maker.table.with_context(**maker.setting(**SMALL))).instants == ()
    times.append(maker.upsert(5, "p/a"))
    before = history(maker.table)
    metadata = {i.requested_time: maker.table.commit_metadata(i) for i in maker.table.timeline.data()}
    plan = archive(maker.table.with_context(**maker.setting(**SMALL)))
    assert [instant.requested_time for instant in plan.instants] == times[:3]
    assert plan.held_back is None
    table = maker.table
    assert [i.requested_time for i in table.timeline] == times[3:]
    assert history(table) == before
    assert maker.rows() == {"p/a": 5}
    assert maker.rows(as_of=times[0]) == {"p/a": 1}
    for instant in table.timeline.archived():
        assert as_archived(table.commit_metadata(instant)) == as_archived(metadata[instant.requested_time])


def as_archived(metadata: CommitMetadata) -> CommitMetadata:
    """Without the times that files took, which Hudi 0.15's archive has no field for."""
    stats = {
        path: tuple(replace(each, runtime_stats=None) for each in of_path)
        for path, of_path in metadata.partition_to_write_stats.items()
    }
    return replace(metadata, partition_to_write_stats=stats)


def test_defaults_are_hudis(maker: Any) -> None:
    maker.upsert(1, "p/a")
    add_commits(maker, 30)
    plan = plan_archive(maker.table.with_context(**maker.setting()))
    assert len(plan.instants) == 11


def test_what_holds_archiving_back(maker: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 7)]
    setting = maker.setting(**SMALL)

    def planned() -> list[str]:
        return [i.requested_time for i in plan_archive(maker.table.with_context(**setting)).instants]

    assert planned() == times[:4]
    create_savepoint(maker.table.with_context(**setting), times[2])
    assert planned() == times[:2]
    plan = plan_archive(maker.table.with_context(**setting))
    assert plan.held_back == f"{times[2]} has a savepoint"


def test_nothing_pending_is_left_behind(maker: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 4)]
    pending, _ = request_instant(maker.table, Action.REPLACE_COMMIT, None, maker.clock)
    add_commits(maker, 5)
    plan = archive(maker.table.with_context(**maker.setting(**SMALL)))
    assert [i.requested_time for i in plan.instants] == times
    assert plan.held_back is not None
    assert pending.requested_time in plan.held_back
    assert maker.table.timeline.first_time == pending.requested_time


def test_replaced_files_are_cleaned_before_their_replace_commit_goes(
    golden_copy_of_version: Callable[[str], Any],
) -> None:
    maker = golden_copy_of_version("cow_insert_overwrite")
    (*_, replacing) = maker.table.timeline.of(Action.REPLACE_COMMIT)
    options = {"keep__max__commits": 2, "keep__min__commits": 1}
    expected = snapshot(maker.table)
    versions = {"cleaner__policy": "KEEP_LATEST_FILE_VERSIONS", "cleaner__fileversions__retained": 1}
    add_commits(maker, 3)  # later ones, so that all others might go
    plan = archive(maker.table.with_context(**maker.setting(**options, **versions)))
    assert plan.held_back is not None
    assert "not cleaned yet" in plan.held_back
    assert snapshot(maker.table) == expected
    clean(maker.table.with_context(**maker.setting(**versions)))
    plan = archive(maker.table.with_context(**maker.setting(**options, **versions)))
    assert replacing in plan.instants
    assert snapshot(maker.table) == expected


def test_incremental_cleaning_finds_what_it_needs(maker: Any) -> None:
    for ts in range(1, 4):
        maker.upsert(ts, "p/a")
    clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    times = [maker.upsert(ts, "p/a") for ts in range(4, 8)]
    plan = archive(maker.table.with_context(**maker.setting(**SMALL)))
    assert plan.held_back is not None
    assert "the next clean goes on from" in plan.held_back
    (cleaned,) = clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    assert len(cleaned.deleted) == 4
    assert maker.rows(as_of=times[-1]) == {"p/a": 7}


def test_numbers_that_do_not_fit_are_refused_by_name(maker: Any) -> None:
    with pytest.raises(
        OptionError, match=r"hoodie.cleaner.commits.retained=20 is not below hoodie.keep.min.commits=20"
    ):
        archive(maker.table.with_context(**maker.setting(cleaner__commits__retained=20)))
    with pytest.raises(OptionError, match=r"hoodie.keep.max.commits=20 is not greater"):
        archive(maker.table.with_context(**maker.setting(keep__max__commits=20)))
    archive(
        maker.table.with_context(**maker.setting(cleaner__policy="KEEP_LATEST_BY_HOURS", cleaner__hours__retained=200))
    )


def test_services_are_archived_by_their_own_number(maker: Any) -> None:
    for ts in range(1, 8):
        maker.upsert(ts, "p/a")
        clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    before = history(maker.table)
    cleans = maker.table.timeline.of(Action.CLEAN).instants
    assert len(cleans) == 5
    plan = archive(maker.table.with_context(**maker.setting(**SMALL)))
    assert [i for i in plan.instants if i.action is Action.CLEAN] == list(cleans[:3])
    table = maker.table
    assert history(table) == before
    archived = [i for i in table.timeline.archived() if i.action is Action.CLEAN]
    assert archived == list(cleans[:3])
    assert table.timeline.archive is not None
    assert table.timeline.archive.completed_content(archived[0]) is not None


def test_a_plan_that_can_not_be_read_does_not_stop_archiving(maker: Any, caplog: pytest.LogCaptureFixture) -> None:
    for ts in range(1, 6):
        maker.upsert(ts, "p/a")
        clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    broken = maker.table.timeline.of(Action.CLEAN).instants[0]
    (maker.folder / maker.table.layout.folder / f"{broken.requested_time}.clean.requested").write_bytes(b"Obj cut")
    for ts in range(6, 9):
        maker.upsert(ts, "p/a")
        clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    assert broken in archive(maker.table.with_context(**maker.setting(**SMALL))).instants
    assert f"{broken.requested_time}.clean.requested" in caplog.text
    assert broken in maker.table.timeline.archived()


@pytest.mark.parametrize("killed", [False, True])
def test_rollbacks_are_archived_by_their_own_number(killed: bool, maker: Any) -> None:
    """After conflicts, killed writers, rollbacks by hand: their requested files hold plans, which no archive keeps."""
    maker.upsert(1, "p/a")
    for ts in range(2, 8):
        if killed:
            request_instant(maker.table, Action.COMMIT, None, maker.clock)
            roll_back_failed(maker.table.with_context(**maker.setting()))
        else:
            roll_back_instant(maker.table.with_context(**maker.setting()), maker.upsert(ts, "p/a"))
    rollbacks = maker.table.timeline.of(Action.ROLLBACK).instants
    assert len(rollbacks) == 6
    contents = {instant: maker.table.plan(instant) for instant in rollbacks}
    before = history(maker.table)
    archive(maker.table.with_context(**maker.setting(**SMALL)))
    table = maker.table
    assert table.timeline.of(Action.ROLLBACK).instants == rollbacks[-2:]
    assert history(table) == before
    assert table.timeline.archive is not None
    assert {i: table.timeline.archive.completed_content(i) for i in table.timeline.archived()} == {
        i: contents[i] for i in rollbacks[:-2]
    }
    assert not [
        name for i in rollbacks[:-2] for name in (maker.folder / table.layout.folder).glob(f"{i.requested_time}*")
    ]
    assert maker.rows() == {"p/a": 1}
    maker.upsert(9, "p/a")
    assert maker.rows() == {"p/a": 9}


@pytest.mark.parametrize("how", [{}, {"dies": True}, {"dies": True, "after": True}], ids=["fails", "dies", "after"])
def test_a_fault_at_any_call(how: dict[str, bool], maker: Any, each_fault: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 6)]
    before = history(maker.table)
    runs = 0
    for copied, table, storage in each_fault(maker, **how):
        where = storage.calls[storage.at - 1] if storage.hit else ""
        try:
            archive(table.with_context(**maker.setting(**SMALL)))
        except SkepError:
            assert history(copied.table) == before, where
            assert not copied.table.timeline.pending().instants, where
            assert copied.rows() == {"p/a": 5}, where
            assert copied.rows(query="incremental", since=times[3]) == {"p/a": 5}, where
        archive(copied.table.with_context(**maker.setting(**SMALL | {"keep__max__commits": 3})))
        assert history(copied.table) == before, where
        assert len(copied.table.timeline) == 2 or len(copied.table.timeline) == 3, where
        assert copied.rows() == {"p/a": 5}, where
        runs += 1
    assert runs > 15


def test_the_newest_checkpoint_of_a_stream_stays_active(maker: Any) -> None:
    """Whatever other writers add: a stream would read its source from the start."""
    for ts in range(1, 4):
        maker.upsert(ts, "p/a")
    key = maker.table.format.streamer_keys.checkpoint
    streamed = maker.table.timeline.data().completed().last()
    layout = maker.table.layout
    metadata = maker.table.commit_metadata(streamed)
    with_checkpoint = replace(metadata, extra_metadata={**metadata.extra_metadata, key: "7"})
    (maker.folder / layout.path(streamed)).write_bytes(layout.encode_commit(with_checkpoint))
    for ts in range(4, 9):
        maker.upsert(ts, "p/a")
    table = maker.table.with_context(**maker.setting(**SMALL))
    plan = archive(table)
    assert plan.held_back == (
        f"{streamed.requested_time} has the newest checkpoint of a stream (skep.archive.keep.checkpoint)"
    )
    assert maker.table.timeline.data().instants[0].requested_time == streamed.requested_time
    archive(maker.table.with_context(**maker.setting(**SMALL)).with_options({"skep.archive.keep.checkpoint": "false"}))
    assert len(maker.table.timeline.data()) == 2
