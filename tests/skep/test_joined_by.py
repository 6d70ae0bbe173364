"""Rows that a join needs: those with one of its values."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skep.query import rows
from skep.query.rows import JoinedBy


@pytest.mark.parametrize("most_bytes", [0, 1 << 20])
def test_rows_with_other_values_are_left_out(most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_COMPARED_BYTES", most_bytes)
    batches = [pa.record_batch({"id": [f"k{at}", None, f"k{at + 1}"], "n": [at, at, at + 1]}) for at in range(0, 90, 2)]
    found = pa.Table.from_batches(JoinedBy("id", pa.array(["k3", "k40", "k700"])).filtered(batches), batches[0].schema)
    assert found.to_pydict() == {"id": ["k3", "k40"], "n": [3, 40]}


def test_values_are_hashed_once_for_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compute:
        calls = 0

        def is_in(self, column: pa.ChunkedArray, value_set: pa.Array) -> pa.ChunkedArray:
            self.calls += 1
            return pc.is_in(column, value_set=value_set)

    compute = Compute()
    monkeypatch.setattr(rows, "pc", compute)
    batches = [pa.record_batch({"id": [f"k{at}"]}) for at in range(50)]
    assert sum(each.num_rows for each in JoinedBy("id", pa.array(["k7"])).filtered(batches)) == 1
    assert compute.calls == 1
