"""Which files a round reads: Hudi's rule by times, and what skep remembers beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import FormatError, InputError
from skep_format.storage import FileStatus
from skep_stream.files.choice import BEFORE_ALL, ChosenFiles, FileRule, Remembered, checkpoint_of, choose

HUDI = FileRule(1000, remembered=0, oversized=False)
SKEP = FileRule(1000)


def file(name: str, time: int, size: int = 10) -> FileStatus:
    return FileStatus(name, size, time)


def names(chosen: ChosenFiles) -> list[str]:
    return [each.path for each in chosen.files]


def first(files: list[FileStatus], rule: FileRule = SKEP) -> ChosenFiles:
    return choose(files, None, Remembered.parse(None, None), rule)


def after(chosen: ChosenFiles, files: list[FileStatus], rule: FileRule = SKEP) -> ChosenFiles:
    remembered = Remembered.parse(chosen.checkpoint, chosen.remembered.text() if rule.remembered else None)
    return choose(files, chosen.checkpoint, remembered, rule)


def test_files_are_read_in_the_order_of_their_times() -> None:
    chosen = first([file("c", 3), file("a", 1), file("_b", 2), file("d/.e", 2), file("_f/g", 2), file("empty", 9, 0)])
    assert names(chosen) == ["a", "c"]
    assert chosen.checkpoint == 3


def test_without_a_file_the_checkpoint_is_that_of_hudi() -> None:
    assert first([]).checkpoint == BEFORE_ALL == -9223372036854775808


def test_the_limit_ends_before_the_file_that_reaches_it_and_keeps_equal_times_together() -> None:
    files = [file("a", 1, 60), file("b", 2, 40), file("c1", 3, 60), file("c2", 3, 60)]
    chosen = first(files, FileRule(100))
    assert names(chosen) == ["a"]
    chosen = after(chosen, files, FileRule(100))
    assert names(chosen) == ["b"]
    assert names(after(chosen, files, FileRule(100))) == ["c1", "c2"]


def test_a_file_as_large_as_the_limit_is_read_alone_or_blocks() -> None:
    files = [file("big", 1, 100), file("next", 2)]
    assert names(first(files, FileRule(100))) == ["big"]
    assert first(files, FileRule(100)).oversized == files[0]
    blocked = first(files, FileRule(100, oversized=False))
    assert names(blocked) == []
    assert blocked.blocked == files[0]


def test_files_with_an_older_or_equal_time_are_read_by_their_names() -> None:
    chosen = first([file("a", 300)])
    files = [file("a", 300), file("late", 240), file("same", 300)]
    again = after(chosen, files)
    assert names(again) == ["late", "same"]
    assert again.late
    assert again.checkpoint == 300
    assert names(after(again, files)) == []
    assert names(after(chosen, files, HUDI)) == []


def test_a_file_that_changed_is_read_again_whole() -> None:
    chosen = first([file("a", 300)])
    assert names(after(chosen, [file("a", 299, 20)])) == ["a"]


def test_after_a_commit_without_names_times_decide() -> None:
    """A JVM streamer made it, or the caller set a checkpoint."""
    assert names(choose([file("a", 1), file("b", 2), file("c", 3)], 2, Remembered.parse(2, None), SKEP)) == ["c"]


def test_the_oldest_files_are_forgotten_and_times_decide_about_them() -> None:
    files = [file(str(at), at) for at in range(1, 6)]
    chosen = first(files, FileRule(1000, remembered=2))
    assert (chosen.remembered.horizon, len(chosen.remembered.files)) == (3, 2)
    assert names(after(chosen, [*files, file("late", 2), file("later", 4)], FileRule(1000, remembered=2))) == ["later"]


def test_nothing_that_is_still_to_be_read_is_forgotten() -> None:
    chosen = first([file("z", 9)], FileRule(1000, remembered=1))
    late = [file(str(at), at, 60) for at in range(1, 5)]
    rule, read = FileRule(100, remembered=1), []
    for _ in range(5):
        chosen = after(chosen, [*late, file("z", 9)], rule)
        read += names(chosen)
    assert read == ["1", "2", "3", "4"]


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 120)), max_size=12),
    st.integers(1, 200),
    st.integers(1, 4),
)
def test_every_file_is_read_once_whatever_the_limit(sizes: list[tuple[int, int]], limit: int, remembered: int) -> None:
    files = [file(f"f{at}", time, size) for at, (time, size) in enumerate(sizes)]
    rule = FileRule(limit, remembered)
    chosen = first(files, rule)
    read = names(chosen)
    for _ in range(len(files)):
        chosen = after(chosen, files, rule)
        read += names(chosen)
    assert sorted(read) == sorted(each.path for each in files)


def test_what_is_no_checkpoint_is_refused() -> None:
    with pytest.raises(InputError, match="'yesterday' is no checkpoint of a file source"):
        checkpoint_of("yesterday")
    with pytest.raises(FormatError, match=r"skep\.stream\.files"):
        Remembered.parse(1, "{}")
