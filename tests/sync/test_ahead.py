"""What was looked up ahead of a sync, and of which partitions it holds."""

from __future__ import annotations

from skep_sync.planning.ahead import Ahead, FoundPartitions

FOUND = FoundPartitions(("day",), frozenset({"day=a", "day=b", "day=c"}), {("a",): "file:/t/a", ("c",): "file:/t/c"})


def ahead(found: FoundPartitions = FOUND) -> Ahead:
    return Ahead({"t": None}, {"t": found}, lambda: None, 0.0)


def test_all_or_some_of_the_partitions() -> None:
    assert ahead().registered("t", ["day=c", "day=a", "day=b"]) == {("a",): "file:/t/a", ("c",): "file:/t/c"}
    assert ahead().registered("t", ["day=b", "day=c"]) == {("c",): "file:/t/c"}
    assert ahead().registered("t", ["day=b"]) == {}


def test_others_were_not_looked_up() -> None:
    assert ahead().registered("t", ["day=a", "day=d"]) is None
    assert ahead().registered("other", ["day=a"]) is None


def test_a_partition_by_another_spelling_is_only_known_among_all() -> None:
    """Which of the names the metastore took for its own is not known."""
    found = FoundPartitions(("day",), frozenset({"day=1", "day=01", "day=2"}), {("001",): None})
    assert ahead(found).registered("t", ["day=1", "day=01", "day=2"]) == {("001",): None}
    assert ahead(found).registered("t", ["day=1", "day=01"]) is None


def test_entries_are_those_of_exactly_these_names() -> None:
    assert ahead().entries_of(["t"]) == {"t": None}
    assert ahead().entries_of(["t", "t_ro"]) is None
