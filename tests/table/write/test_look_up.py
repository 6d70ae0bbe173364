"""The look-up of keys: each candidate file is read once whatever the number of tasks, if it may hold a key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from counting_storage import CountingStorage
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.indexes.bloom_lookup import BloomLookUp
from skep_table.write.indexes.contract import Candidates, WrittenKeys
from skep_table.write.indexes.tagging import Hits, Tagging, locate, resolved, share
from skep_table.write.local import LocalWriter
from skep_table.write.planning.candidates import CandidateFile, CandidateFiles, candidate_files
from skep_table.write.tags import HELD, NOT_HELD

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
FILES, TASKS = 200, 8


def rows(numbers: Any, ts: int = 1, part: str = "p") -> pa.Table:
    count = len(numbers)
    return pa.table({"id": [f"k{n:06d}" for n in numbers], "part": [part] * count, "ts": [ts] * count}, SCHEMA)


def keyed(names: list[str], part: str = "p") -> pa.Table:
    return pa.table({"_hoodie_record_key": names, "_hoodie_partition_path": [part] * len(names)})


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 200 base files in one partition, whose keys are spread over all files."""
    folder = tmp_path_factory.mktemp("many") / "t"
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(LocalStorage(str(folder)), spec)
    options = {
        "hoodie.copyonwrite.insert.auto.split": "false",
        "hoodie.copyonwrite.insert.split.size": "10",
        "hoodie.index.bloom.num_entries": "100",
        "hoodie.bloom.index.filter.type": "SIMPLE",
    }
    LocalWriter(table.with_options(options)).insert(rows(range(10 * FILES)))
    return folder


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("ranges", [False, True])
def test_each_candidate_file_is_read_once_whatever_the_number_of_tasks(
    many_files: Path, is_global: bool, ranges: bool
) -> None:
    storage = CountingStorage(LocalStorage(str(many_files)))
    table = HudiTable.open(storage)
    files = candidate_files(table, ["p"])
    assert len(files["p"]) >= FILES
    look_up = BloomLookUp(table, files, is_global)
    asked = keyed([f"k{n:06d}" for n in range(0, 20 * FILES, 2)])
    storage.calls.clear()
    if ranges:
        look_up = look_up.with_ranges(ThreadRunner(TASKS))
        assert set(Counter(storage.calls.paths("read_suffix")).values()) == {1}
        storage.calls.clear()
    numbers = locate(Tagging(look_up, files), asked, ThreadRunner(TASKS)).numbers
    assert (numbers[: 10 * FILES // 2] >= 0).all()
    assert (numbers[10 * FILES // 2 :] < 0).all()
    opened = Counter(storage.calls.paths("open_input"))  # for footer and keys
    assert (len(opened), max(opened.values())) == (len(files["p"]), 1)
    assert set(storage.calls.counts()) == {"open_input"}


def test_files_outside_of_the_range_of_keys_are_not_opened(many_files: Path) -> None:
    storage = CountingStorage(LocalStorage(str(many_files)))
    table = HudiTable.open(storage)
    files = candidate_files(table, ["p"])
    tagging = Tagging(BloomLookUp(table, files).with_ranges(ThreadRunner()), files)
    storage.calls.clear()
    assert (locate(tagging, keyed(["a", "z"]), ThreadRunner()).numbers < 0).all()
    assert not storage.calls.counts()


def test_footers_are_read_once_by_an_upsert(many_files: Path, tmp_path: Path) -> None:
    """Look-up and merge together: a file that is rewritten is read by each, all others at most once."""
    import shutil

    shutil.copytree(many_files, tmp_path / "t")
    storage = CountingStorage(LocalStorage(str(tmp_path / "t")))
    table = HudiTable.open(storage)
    storage.calls.clear()
    result = LocalWriter(table.with_context(runner=ThreadRunner(TASKS))).upsert(rows([3, 10 * FILES + 3], ts=2))
    assert (result.updated, result.inserted) == (1, 1)
    opened = Counter(storage.calls.paths("open_input", suffix=".parquet"))
    assert max(opened.values()) <= 2
    assert sum(count - 1 for count in opened.values()) <= 2


FOUND = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple), min_size=0, max_size=12)


def by_file(candidates: Candidates, spans: Any) -> dict[int, tuple[list[str], list[int]]]:
    return {
        number: (candidates.keys.slice(low, high - low).to_pylist(), candidates.rows[low:high].tolist())
        for number, low, high in spans
    }


@settings(max_examples=200, deadline=None)
@given(spans=FOUND, tasks=st.integers(1, 5))
def test_shares_hold_the_candidates_of_their_files(spans: list[Any], tasks: int) -> None:
    keys = pa.array([f"k{at}" for at in range(30)])
    order = np.random.default_rng(0).permutation(30)
    candidates = Candidates(keys, order, tuple((n, low, high) for n, (low, high) in enumerate(spans) if high > low))
    for task in range(tasks):
        mine = candidates.spans[task::tasks]
        if not mine:
            continue
        part = share(candidates, mine)
        assert len(part.keys) == len(part.rows) <= len(keys)
        found = {
            n: (part.keys.slice(low, high - low).to_pylist(), part.rows[low:high].tolist())
            for n, low, high in part.spans
        }
        assert found == {
            n: (keys.slice(low, high - low).to_pylist(), order[low:high].tolist()) for n, low, high in mine
        }


def test_of_several_files_the_first_counts() -> None:
    numbers = np.array([-1, -1, 7, -5], np.int64)
    hits: list[Hits] = [
        (np.array([0, 1]), np.array([4, 4]), np.array([10, 11])),
        (np.array([0]), np.array([2]), np.array([12])),
        (np.array([1]), np.array([9]), None),
    ]
    found = resolved(numbers, hits)
    assert found.positions is not None
    assert (found.numbers.tolist(), found.positions.tolist()) == ([2, 4, 7, -5], [12, 11, HELD, NOT_HELD])
    assert resolved(numbers, []) == (pytest.approx(numbers), None)


def test_files_are_numbered_one_partition_after_the_other() -> None:
    def file(name: str) -> CandidateFile:
        return CandidateFile(name, f"{name}.parquet", "1", 10)

    files = CandidateFiles({"a": (file("x"), file("y")), "empty": (), "b": (file("z"),)})
    assert [files.first_number(path) for path in ("a", "empty", "b", "unknown")] == [0, 2, 2, 0]
    assert files.numbered(2) == ("b", file("z"))
    assert files.numbers() == {("a", "x"): 0, ("a", "y"): 1, ("b", "z"): 2}
    places = files.places(np.array([2, -1, 1, -9], np.int64))
    assert places.partitions.to_pylist() == ["b", None, "a", None]
    assert places.tags.tolist() == [0, -1, 1, -9]


def test_an_index_gets_the_new_keys_and_statistics_of_each_file(tmp_path: Path) -> None:
    """Of inserts, of small files that are filled up, and of upserts: the keys that the group did not hold."""
    from skep_table.write.indexes.bloom_lookup import BloomIndex
    from skep_table.write.planning import plan

    written: list[WrittenKeys] = []

    class Keeping(BloomIndex):
        keeps_keys = True

        def on_written(self, found: WrittenKeys) -> None:
            written.append(found)

    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "index_of", lambda _config, _options: Keeping())
        for ts, operation, numbers in ((1, "insert", range(5)), (2, "upsert", range(3, 8)), (3, "insert", range(8, 9))):
            result = getattr(LocalWriter(table), operation)(rows(numbers, ts))
            (found,) = written
            (stat,) = result.metadata.stats
            assert (found.file_id, found.path) == (stat.file_id, stat.path)
            assert (found.num_rows, found.size_bytes) == (stat.num_writes, stat.file_size_in_bytes)
            assert (found.instant_time, found.partition_path) == (result.instant.requested_time, "p")
            assert found.keys.to_pylist() == [f"k{n:06d}" for n in numbers if ts != 2 or n > 4]
            assert (found.columns["ts"].low, found.columns["ts"].high, found.columns["ts"].nulls) == (1, ts, 0)
            written.clear()
        LocalWriter(table).delete(rows([0]).select(["id", "part"]))
        assert [len(found.keys) for found in written] == [0]
