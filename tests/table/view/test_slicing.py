"""File slicing (format guide 10): the files of a partition and the timeline determine the slices to read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import UnsupportedError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.names import MarkerType
from skep_format.storage import FileStatus
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.layout import layout_1, layout_2
from skep_format.timeline.timeline import Timeline
from skep_format.versions import LogNaming
from skep_table.view.slicing import FileGroup, FileSlice, InstantStates, file_groups


def t(number: int) -> InstantTime:
    return InstantTime(f"{number:017d}")


def base(number: int, group: str = "f-0", token: str = "0-0-0", ext: str = "parquet") -> str:
    return f"{group}_{token}_{t(number)}.{ext}"


def log(number: int, version: int = 1, group: str = "f-0", token: str = "0-0-0", suffix: str = "") -> str:
    return f".{group}_{t(number)}.log.{version}_{token}{suffix}"


Commits = Mapping[int, int | None]
"""Requested → completion number; None while pending."""


def facts(commits: Commits, *, v8: bool = False, as_of: int | None = None, **more: object) -> InstantStates:
    instants = [
        Instant(
            t(n),
            Action.COMMIT,
            State.INFLIGHT if c is None else State.COMPLETED,
            CompletionTime(t(c)) if v8 and c else None,
        )
        for n, c in commits.items()
    ]
    timeline = Timeline(instants, layout_2() if v8 else layout_1())
    return InstantStates(
        is_committed=lambda time: timeline.is_completed_or_archived(time) and (as_of is None or time <= t(as_of)),
        completion_time_of=timeline.completion_time_of,
        logs=LogNaming(
            of_delta_commit=v8, marker_type=MarkerType.CREATE if v8 else MarkerType.APPEND, has_positions=v8
        ),
        **more,  # type: ignore[arg-type]
    )


def groups(names: list[str], given_: InstantStates) -> list[FileGroup]:
    return file_groups("p", [FileStatus(f"p/{name}", 1, 0) for name in names], given_)


def shape(slice_: FileSlice | None) -> tuple[int, str | None, list[str]] | None:
    if slice_ is None:
        return None
    base_name = str(slice_.base_file.name) if slice_.base_file else None
    return int(slice_.base_instant), base_name, [str(log_file.name) for log_file in slice_.log_files]


def latest(names: list[str], given_: InstantStates) -> list[tuple[int, str | None, list[str]] | None]:
    return [shape(group.latest) for group in groups(names, given_)]


def done(*numbers: int) -> Commits:
    return {number: number for number in numbers}


# -- both layouts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("v8", [False, True], ids=["v6", "v8"])
def test_the_newest_committed_base_file_of_each_group(v8: bool) -> None:
    names = [base(1), base(2), base(3), base(2, "g-0"), base(9, "h-0")]
    commits = {1: 1, 2: 2, 3: None}
    assert latest(names, facts(commits, v8=v8)) == [(2, base(2), []), (2, base(2, "g-0"), [])]


@pytest.mark.parametrize("v8", [False, True], ids=["v6", "v8"])
def test_other_files_are_passed_over(v8: bool) -> None:
    names = [
        base(1),
        ".hoodie_partition_metadata",
        "_SUCCESS",
        ".f-0_1.parquet.crc",
        base(1, ext="csv"),
        log(1, suffix=".cdc"),
        f".commits_{t(1)}.archive.1_1-0-1",
        "part-0.parquet",
    ]
    assert latest(names, facts(done(1), v8=v8)) == [(1, base(1), [])]


@pytest.mark.parametrize("ext", ["parquet", "orc", "hfile"])
def test_base_files_of_all_formats(ext: str) -> None:
    assert latest([base(1, ext=ext)], facts(done(1))) == [(1, base(1, ext=ext), [])]


def test_base_files_that_are_not_read_are_an_error() -> None:
    with pytest.raises(UnsupportedError, match=r"p/f-0_0-0-0_0+1\.lance is a base file in Lance"):
        groups([base(1), base(1, ext="lance")], facts(done(1)))


def test_files_of_another_table_format_lie_under_their_own_names() -> None:
    """Each is a group of its own; one below a folder is named with it."""
    marked = {
        f"part-0.parquet_{t(1)}_hudiext": "p/part-0.parquet",
        f"part-1.parquet_{t(2)}_hudiext": "p/part-1.parquet",
        f"part-0.parquet_{t(1)}_fg%3Db%2F1_hudiext": "p/b/1/part-0.parquet",
    }
    found = groups(list(marked), facts({1: 1, 2: None}))
    assert {
        (slice_.base_file.path, str(slice_.base_file.name))
        for (slice_,) in (g.slices for g in found)
        if slice_.base_file
    } == {(path, name) for name, path in marked.items() if "part-1" not in name}
    assert {group.file_id for group in found} == {"part-0.parquet", "b/1/part-0.parquet"}


def test_what_is_older_than_the_timeline_is_committed() -> None:
    assert latest([base(1)], facts(done(5, 6))) == [(1, base(1), [])]


def test_a_replaced_group_is_marked() -> None:
    (group,) = groups([base(1)], facts(done(1, 2), replaced={("p", "f-0"): t(2)}))
    assert group.replaced_by == t(2)


def test_a_group_in_pending_clustering_is_read_as_it_is() -> None:
    (group,) = groups([base(1)], facts({1: 1, 2: None}, pending_clusterings={("p", "f-0"): t(2)}))
    assert group.pending_clustering == t(2)
    assert shape(group.latest) == (1, base(1), [])


def test_slices_are_newest_first_with_their_sizes() -> None:
    (group,) = groups([base(1), base(2), log(2)], facts(done(1, 2)))
    assert [slice_.base_instant for slice_ in group.slices] == [t(2), t(1)]
    assert group.slices[0].size_bytes == 2


def test_of_two_files_of_one_attempt_each_time_the_same_is_taken() -> None:
    names = [base(1, token="0-0-1"), base(1, token="0-0-2")]
    assert latest(names, facts(done(1))) == latest(names[::-1], facts(done(1)))


def test_time_travel_sees_what_was_requested_until_then() -> None:
    names = [base(1), base(3), base(5, "g-0")]
    assert latest(names, facts(done(1, 3, 5), as_of=2)) == [(1, base(1), [])]
    assert latest(names, facts(done(1, 3, 5), as_of=3)) == [(3, base(3), [])]
    assert latest(names, facts(done(1, 3, 5), as_of=0)) == []


# -- version 6: log files have the base instant of their slice ---------------------------------------------------------


def test_v6_logs_belong_to_the_slice_in_their_name_in_the_order_of_their_versions() -> None:
    names = [log(2, 10), log(2, 2), log(2, 2, token="1-0-1"), log(1), base(1), base(2)]
    expected = (2, base(2), [log(2, 2), log(2, 2, token="1-0-1"), log(2, 10)])
    assert latest(names, facts(done(1, 2, 3))) == [expected]


def test_v6_log_only_slices() -> None:
    assert latest([log(1), log(1, 2)], facts(done(1))) == [(1, None, [log(1), log(1, 2)])]


def test_v6_a_pending_compaction_shows_the_logs_over_the_slice_before() -> None:
    names = [base(1), log(1), log(3, 1), base(3)]  # base(3): left by a compaction that failed
    given_ = facts({1: 1, 2: 2, 3: None, 4: 4}, pending_compactions={("p", "f-0"): t(3)})
    (group,) = groups(names, given_)
    assert shape(group.latest) == (1, base(1), [log(1), log(3)])
    assert [shape(slice_) for slice_ in group.slices] == [(3, None, [log(3)]), (1, base(1), [log(1)])]
    assert group.pending_compaction == t(3)


def test_v6_a_pending_compaction_without_logs_yet() -> None:
    given_ = facts({1: 1, 3: None}, pending_compactions={("p", "f-0"): t(3)})
    assert latest([base(1), base(3)], given_) == [(1, base(1), [])]


def test_v6_logs_on_a_pending_compaction_of_a_log_only_group() -> None:
    given_ = facts({1: 1, 3: None, 4: 4}, pending_compactions={("p", "f-0"): t(3)})
    assert latest([log(1), log(3)], given_) == [(1, None, [log(1), log(3)])]
    assert latest([log(3)], given_) == [(3, None, [log(3)])]


def test_v6_after_the_compaction_its_slice_counts() -> None:
    names = [base(1), log(1), log(3), base(3)]
    assert latest(names, facts(done(1, 2, 3, 4))) == [(3, base(3), [log(3)])]


# -- version 8 and later: log files have their own delta commit --------------------------------------------------------


def test_v8_logs_belong_to_the_newest_slice_that_began_before_they_completed() -> None:
    commits = {1: 1, 2: 3, 4: 5, 6: 7}
    names = [base(1), log(2), base(4), log(6)]
    (group,) = groups(names, facts(commits, v8=True))
    assert [shape(slice_) for slice_ in group.slices] == [(4, base(4), [log(6)]), (1, base(1), [log(2)])]


def test_v8_a_delta_commit_that_completed_after_a_compaction_was_requested_is_on_top_of_it() -> None:
    """Completion of the delta commit against the requested time of the compaction: both were running at once."""
    names = [base(1), log(2), base(4)]
    assert latest(names, facts({1: 1, 2: 5, 4: 6}, v8=True)) == [(4, base(4), [log(2)])]
    assert latest(names, facts({1: 1, 2: 4, 4: 6}, v8=True)) == [(4, base(4), [log(2)])]  # at that very time
    assert latest(names, facts({1: 1, 2: 3, 4: 6}, v8=True)) == [(4, base(4), [])]


def test_v8_logs_of_pending_delta_commits_are_dropped() -> None:
    assert latest([base(1), log(2), log(3)], facts({1: 1, 2: None, 3: 4}, v8=True)) == [(1, base(1), [log(3)])]


def test_v8_log_only_groups_begin_with_their_first_delta_commit() -> None:
    names = [log(3), log(2), log(2, 2)]
    assert latest(names, facts({2: 3, 3: 4}, v8=True)) == [(2, None, [log(2), log(2, 2), log(3)])]


def test_v8_a_pending_compaction_shows_the_logs_over_the_slice_before() -> None:
    given_ = facts({1: 1, 2: 3, 4: None, 5: 6}, v8=True, pending_compactions={("p", "f-0"): t(4)})
    names = [base(1), log(2), base(4), log(5)]
    assert latest(names, given_) == [(1, base(1), [log(2), log(5)])]


def test_v8_archived_delta_commits_completed_when_they_were_requested() -> None:
    assert latest([base(1), log(2), base(4)], facts(done(7), v8=True)) == [(4, base(4), [])]


def test_v8_time_travel_drops_later_logs() -> None:
    names = [base(1), log(2), log(3)]
    assert latest(names, facts({1: 1, 2: 4, 3: 5}, v8=True, as_of=2)) == [(1, base(1), [log(2)])]


# -- a model ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["base", "log"]), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_one_writer_both_layouts_give_the_same_view(story: list[str], random: object) -> None:
    """One writer at a time: the latest slice is the last base file with every log after it, in either naming."""
    one, two, expected_base, since = [], [], None, 0
    logs: list[int] = []
    for number, kind in enumerate(story, start=1):
        if kind == "base":
            one.append(base(number))
            two.append(base(number))
            expected_base, since, logs = number, number, []
        else:
            since = since or number
            logs.append(number)
            one.append(log(since, len(logs)))
            two.append(log(number))
    random.shuffle(one)  # type: ignore[attr-defined]
    random.shuffle(two)  # type: ignore[attr-defined]
    numbers = range(1, len(story) + 1)
    (six,) = latest(one, facts(done(*numbers)))
    (eight,) = latest(two, facts(done(*numbers), v8=True))
    base_name = base(expected_base) if expected_base else None
    assert six == (since, base_name, [log(since, version) for version in range(1, len(logs) + 1)])
    assert eight == (since, base_name, [log(number) for number in logs])
