"""Which rows go into which file."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.basefile import BaseFileOptions
from skep_format.timeline.metadata import BaseFilesWritten
from skep_table.write.output.sizes import record_bytes
from skep_table.write.planning.candidates import CandidateFile, LogTail
from skep_table.write.planning.profile import LogSizing, PartitionProfile, Sizing, pack, plan_buckets
from skep_table.write.tags import NEW_KEY

SIZING = Sizing(small_file_bytes=100, max_file_bytes=120, record_bytes=10)  # 12 rows a file


def file(name: str, size: int) -> CandidateFile:
    return CandidateFile(name, f"{name}.parquet", "20240101000000000", size)


def test_updates_go_to_their_file_and_inserts_fill_the_small_one() -> None:
    profile = PartitionProfile((file("big", 110), file("small", 60)), {0: 3}, 5)
    plan = plan_buckets({"p": profile}, SIZING)
    assert [(bucket.file_id, bucket.rows) for bucket in plan.buckets] == [("big", 3), ("small", 5)]


def test_what_no_small_file_takes_goes_to_full_new_groups_and_one_with_the_rest() -> None:
    plan = plan_buckets({"p": PartitionProfile((file("small", 60),), {}, 35)}, SIZING)
    small, *new = plan.buckets
    assert (small.base, small.rows) == (file("small", 60), 6)
    assert [bucket.base for bucket in new] == [None] * 3
    assert [bucket.rows for bucket in new] == [12, 12, 5]
    assert len({bucket.file_id for bucket in new}) == 3


@pytest.mark.parametrize(
    ("rows", "files"), [(0, []), (5, [5]), (12, [12]), (13, [13]), (14, [12, 2]), (26, [13, 13]), (27, [12, 12, 3])]
)
def test_a_rest_too_small_for_a_file_is_spread_over_the_others(rows: int, files: list[int]) -> None:
    assert SIZING.new_files(rows) == files


def test_bulk_insert_leaves_small_files_alone() -> None:
    plan = plan_buckets({"p": PartitionProfile((file("small", 60),), {}, 5)}, SIZING, fill_small_files=False)
    assert [bucket.base for bucket in plan.buckets] == [None]


@given(
    st.lists(st.integers(0, 200), max_size=5),
    st.dictionaries(st.integers(0, 4), st.integers(1, 50), max_size=5),
    st.integers(0, 500),
    st.integers(1, 2**63),
)
def test_every_row_has_one_bucket_in_its_partition(
    sizes: list[int], updates: dict[int, int], inserts: int, seed: int
) -> None:
    files = tuple(file(f"f{at}", size) for at, size in enumerate(sizes))
    updates = {at: rows for at, rows in updates.items() if at < len(files)}
    plan = plan_buckets({"p": PartitionProfile(files, updates, inserts), "q": PartitionProfile((), {}, 1)}, SIZING)
    assert [bucket.number for bucket in plan.buckets] == list(range(len(plan.buckets)))
    assert sum(bucket.rows for bucket in plan.buckets) == sum(updates.values()) + inserts + 1
    tags = np.array([at for at, rows in updates.items() for _ in range(rows)] + [NEW_KEY] * inserts, np.int32)
    hashes = np.random.default_rng(seed).integers(0, 2**63, len(tags)).astype(np.uint64)
    chosen = plan.routes["p"].buckets(tags, hashes)
    for tag, number in zip(tags.tolist(), chosen.tolist(), strict=True):
        bucket = plan.buckets[number]
        assert bucket.partition_path == "p"
        if tag != NEW_KEY:
            assert bucket.base == files[tag]


def test_keys_of_a_delete_that_are_nowhere_have_no_bucket() -> None:
    plan = plan_buckets({"p": PartitionProfile((file("a", 110),), {0: 1}, 0)}, SIZING)
    chosen = plan.routes["p"].buckets(np.array([0, NEW_KEY], np.int32), np.zeros(2, np.uint64))
    assert chosen.tolist() == [0, NEW_KEY]


def test_the_record_size_is_that_of_the_newest_commit_large_enough() -> None:
    commits = [BaseFilesWritten(50, (1,)), BaseFilesWritten(1001, (60, 40)), BaseFilesWritten(5000, (10,))]
    bare = BaseFileOptions(key_filter=False)
    assert record_bytes(commits, threshold_bytes=100, files=bare) == 11
    assert record_bytes(commits[:1], threshold_bytes=100, files=bare) is None


def test_filters_are_no_part_of_the_records_size() -> None:
    files = BaseFileOptions()
    commit = BaseFilesWritten(2 * files.filter_bytes(10) + 800, (10, 10))
    assert record_bytes([commit], threshold_bytes=0, files=files) == 40


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(1, 12))
def test_packing_keeps_every_item_and_no_task_is_empty(sizes: list[int], tasks: int) -> None:
    packed = pack(sizes, tasks)
    assert Counter(at for group in packed for at in group) == Counter(range(len(sizes)))
    assert len(packed) == min(tasks, len(sizes))
    loads = [sum(sizes[at] for at in group) for group in packed]
    assert max(loads) - min(loads) <= max(sizes) + len(sizes)


def test_a_hot_partition_is_spread_over_the_tasks() -> None:
    cold = {f"cold{number}": PartitionProfile(inserts=3) for number in range(9)}
    plan = plan_buckets({"hot": PartitionProfile(inserts=1_200), **cold}, SIZING)
    tasks = [[plan.buckets[at] for at in task] for task in pack([bucket.rows for bucket in plan.buckets], 4)]
    assert all(any(bucket.partition_path == "hot" for bucket in task) for task in tasks)
    loads = [sum(bucket.rows for bucket in task) for task in tasks]
    assert max(loads) - min(loads) <= 12  # one file's


def test_a_number_of_rows_can_make_the_files() -> None:
    plan = plan_buckets({"p": PartitionProfile(inserts=1_000)}, Sizing(split_rows=300))
    assert [bucket.rows for bucket in plan.buckets] == [300, 300, 300, 100]


def test_inserts_do_not_rewrite_a_base_file_that_is_many_times_as_large() -> None:
    """They begin a file, which the next inserts fill up: files stay few, each rewritten by inserts of its size."""
    large, small = file("large", 50 << 20), file("small", 3 << 20)
    logs = LogSizing(most_rewritten=4_000)
    sizing = Sizing(record_bytes=1_000, logs=logs)
    few = plan_buckets({"p": PartitionProfile((large,), {}, 1_000)}, sizing)
    assert [bucket.base for bucket in few.buckets] == [None]
    again = plan_buckets({"p": PartitionProfile((large, small), {}, 1_000)}, sizing)
    assert [bucket.base for bucket in again.buckets] == [small]
    many = plan_buckets({"p": PartitionProfile((large,), {}, 20_000)}, sizing)
    assert [bucket.base for bucket in many.buckets] == [large]
    as_hudi = plan_buckets({"p": PartitionProfile((large,), {}, 1)}, replace(sizing, logs=LogSizing()))
    assert [bucket.base for bucket in as_hudi.buckets] == [large]


def test_logs_take_inserts_of_all_groups_that_are_not_full() -> None:
    """SparkUpsertDeltaCommitPartitioner.getSmallFileCandidates, of an index that can index log files."""
    busy = replace(file("busy", 20), compaction="3", tail=LogTail("3"))
    logged = replace(file("logged", 40), tail=LogTail("1", 2, (".l",), size=100))  # 35 bytes as a base file
    files = (file("full", 120), file("large", 110), logged, busy)
    sizing = replace(SIZING, logs=LogSizing(takes_inserts=True))
    plan = plan_buckets({"p": PartitionProfile(files, {}, 8)}, sizing)
    assert [(bucket.file_id, bucket.rows, bucket.to_log) for bucket in plan.buckets[:2]] == [
        ("logged", 4, True),
        ("large", 1, True),
    ]
    assert [(bucket.base, bucket.rows, bucket.to_log) for bucket in plan.buckets[2:]] == [(None, 3, True)]
    none = plan_buckets({"p": PartitionProfile(files, {}, 8)}, replace(sizing, small_file_bytes=0))
    assert [bucket.base for bucket in none.buckets] == [None]


def test_without_an_index_of_logs_the_smallest_groups_without_logs_are_rewritten() -> None:
    """The same, of an index that finds keys in base files only."""
    logged = replace(file("logged", 10), tail=LogTail("1", 2, (".l",), size=1))
    planned = replace(file("planned", 5), compaction="3", tail=LogTail("3"))
    files = (file("second", 60), file("first", 50), file("large", 101), logged, planned)
    for limit, expected in ((0, []), (1, ["first"]), (2, ["first", "second"]), (9, ["first", "second"])):
        sizing = replace(SIZING, logs=LogSizing(candidates=limit))
        plan = plan_buckets({"p": PartitionProfile(files, {}, 13)}, sizing)
        assert [bucket.file_id for bucket in plan.buckets if bucket.base is not None] == expected
        assert not any(bucket.to_log for bucket in plan.buckets)
