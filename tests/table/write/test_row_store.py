"""Rows grouped by label, in memory or on disk: what is read is what was added, in its order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep_table.write.context import Memory
from skep_table.write.input.row_input import OnceInput, pieces
from skep_table.write.planning.arrange import Arrangement
from skep_table.write.planning.range_sort import arranged
from skep_table.write.row_store import ARRIVAL, RowStore
from skep_table.write.rows import by_key

BATCHES = st.lists(st.lists(st.integers(-1, 5), max_size=40), max_size=6)


def batch(values: list[int], first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"n": np.arange(first, first + len(values)), "label": [f"p{value}" for value in values]})


@pytest.mark.parametrize("limit", [0, 500, 1 << 30])
@given(BATCHES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_read_by_label_in_their_order(limit: int, given_: list[list[int]]) -> None:
    store: RowStore[str] = RowStore(limit)
    expected: dict[str, list[int]] = {}
    first = 0
    labels = [f"p{at}" for at in range(5)]  # a code beyond them, like one below 0, leaves a row out
    for values in given_:
        store.add(batch(values, first), labels, np.array(values, np.int32))
        for at, value in enumerate(values):
            if 0 <= value < 5:
                expected.setdefault(f"p{value}", []).append(first + at)
        first += len(values)
    assert dict(store.labels) == {label: len(rows) for label, rows in expected.items()}
    for label, rows in expected.items():
        for _ in range(2):
            assert [n for part in store.batches(label, ["n"]) for n in part.column("n").to_pylist()] == rows
        assert {text for part in store.batches(label) for text in part.column("label").to_pylist()} == {label}
    numbered = [(row["n"], row[ARRIVAL]) for part in store.numbered() for row in part.to_pylist()]
    assert sorted(numbered) == [(n, n) for n in sorted(n for rows in expected.values() for n in rows)]
    store.close()


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_rows_of_a_label_are_split_by_other_labels(limit: int) -> None:
    store: RowStore[str] = RowStore(limit)
    for first in (0, 100):
        store.add(batch([0, 1] * 50, first), ["even", "odd"], np.array([0, 1] * 50, np.int32))
    into: RowStore[int] = RowStore(limit)
    codes = np.array([-1 if at % 3 == 2 else at % 3 for at in range(100)], np.int32)
    store.split("odd", into, [70, 80], codes)
    odd = np.arange(1, 200, 2)
    for label, code in ((70, 0), (80, 1)):
        found = [n for part in into.batches(label) for n in part.column("n").to_pylist()]
        assert found == odd[codes == code].tolist()
    store.close()
    into.close()


def test_many_labels_in_many_batches() -> None:
    store: RowStore[int] = RowStore(1 << 30)
    codes = np.arange(500, dtype=np.int32)
    for first in range(0, 5000, 500):
        store.add(batch([0] * 500, first), list(range(500)), codes)
    assert [n for part in store.batches(7) for n in part.column("n").to_pylist()] == list(range(7, 5000, 500))


def test_a_sample_comes_from_all_over() -> None:
    for limit in (0, 1 << 40):
        store: RowStore[int] = RowStore(limit)
        for first in range(0, 300_000, 50_000):
            store.add(batch([0] * 50_000, first), (0,), np.zeros(50_000, np.int32))
        numbers = store.sample(1_000).column("n").to_numpy()
        assert 400 <= len(numbers) <= 1_100
        assert np.histogram(numbers, 6, (0, 300_000))[0].min() > 60
        store.close()


@given(st.lists(st.integers(0, 30), max_size=300), st.sampled_from([200, 2_000, 1 << 30]))
@settings(max_examples=60, deadline=None)
def test_rows_of_a_key_stay_together(keys: list[int], limit: int) -> None:
    rows = pa.record_batch({"_hoodie_record_key": [f"k{key}" for key in keys], "n": np.arange(len(keys))})
    found = list(by_key(iter([rows]), rows.nbytes, Memory(limit)))
    assert found
    seen: set[str] = set()
    for table in found:
        own = set(table["_hoodie_record_key"].to_pylist())
        assert not own & seen
        seen |= own
        for key in own:
            numbers = [row["n"] for row in table.to_pylist() if row["_hoodie_record_key"] == key]
            assert numbers == [at for at, other in enumerate(keys) if f"k{other}" == key]
    assert sum(table.num_rows for table in found) == len(keys)


@given(st.lists(st.one_of(st.none(), st.integers(-50, 50)), max_size=400), st.sampled_from([300, 3_000, 1 << 30]))
@settings(max_examples=60, deadline=None)
def test_a_sort_by_ranges_is_the_sort_in_memory(values: list[int | None], limit: int) -> None:
    table = pa.table(
        {
            "_hoodie_partition_path": pa.repeat("p", len(values)),
            "v": pa.array(values, pa.int64()),
            "n": np.arange(len(values)),
        }
    )
    arrangement = Arrangement(("_hoodie_partition_path", "v"), by_range=True)
    parts = [table.slice(start, 50) for start in range(0, len(values), 50)]
    found = [row for part in arranged(parts, arrangement, Memory(limit)) for row in part.to_pylist()]
    expected = sorted(values, key=lambda value: (value is None, value))
    assert [row["v"] for row in found] == expected
    assert sorted(row["n"] for row in found) == list(range(len(values)))


def test_what_can_be_read_once_is_read_again_from_where_it_is_kept(tmp_path: Path) -> None:
    given_ = [batch([1] * 100, first) for first in range(0, 1_000, 100)]
    folder = tmp_path / "spill"
    rows = OnceInput(given_[0].schema, iter(given_), 3 * given_[0].nbytes, str(folder))
    started = rows.batches()
    next(started)  # a first try that failed
    numbers = [n for part in rows.batches() for n in part.column("n").to_pylist()]
    assert numbers == [n for part in rows.batches() for n in part.column("n").to_pylist()] == list(range(1_000))
    assert list(folder.iterdir()) == []  # the file has no name
    rows.release()


def test_pieces_have_about_the_size_that_is_asked_for() -> None:
    small = [batch([0] * 10, first) for first in range(0, 1_000, 10)]
    found = list(pieces([*small, batch([0] * 100_000, 1_000)], 50_000))
    assert [n for table in found for n in table["n"].to_pylist()] == list(range(101_000))
    assert max(table.nbytes for table in found) <= 60_000
    assert len(found) < 60
