"""Records by file group, on disk and in the order of their keys."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import StorageError
from skep_table.metadata_write.making.spool import GroupSpool

ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.text(st.characters(exclude_categories=["Cs"]), max_size=4)), max_size=40
)


def table(key: str, number: int) -> pa.Table:
    return pa.table({"key": pa.array([key]), "number": pa.array([number], pa.int32())})


@given(ROWS, st.integers(1, 200), st.integers(1, 200))
def test_each_group_comes_in_the_order_of_its_keys_bytes(rows: list[tuple[int, str]], held: int, chunk: int) -> None:
    expected: dict[int, list[tuple[bytes, int]]] = defaultdict(list)
    with GroupSpool(held_bytes=held, chunk_bytes=chunk) as spool:
        for number, (group, key) in enumerate(rows):
            spool.add(group, table(key, number))
            expected[group].append((key.encode(), number))
        for group in range(4):
            pieces = list(spool.ascending(group))
            found = [(row["key"].encode(), row["number"]) for piece in pieces for row in piece.to_pylist()]
            assert [key for key, _ in found] == sorted(key for key, _ in expected[group])
            assert sorted(found) == sorted(expected[group])
            assert spool.count(group) == len(found)


def test_pieces_are_small() -> None:
    with GroupSpool(chunk_bytes=1000) as spool:
        spool.add("g", pa.table({"key": [f"{number:04d}" for number in range(1000)]}))
        pieces = list(spool.ascending("g"))
    assert len(pieces) >= 8
    assert all(len(piece) <= 130 for piece in pieces)


def test_a_folder_that_can_not_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        GroupSpool(str(tmp_path / "file" / "below"), held_bytes=1) as spool,
        pytest.raises(StorageError, match="below"),
    ):
        spool.add(0, table("k", 1))
