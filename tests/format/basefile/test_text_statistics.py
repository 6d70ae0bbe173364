"""Statistics of text that is written with its dictionary: those that Arrow would state, made of the dictionary."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.basefile import BaseFileWriter, open_base
from skep_format.basefile.encoding import ENCODED_TEXT
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage

SCHEMA = from_arrow(pa.schema([("n", pa.int64()), ("word", pa.string()), ("other", pa.string())]))
LONG = "x" * 5000
TEXTS = st.lists(st.none() | st.sampled_from(["", "a", "b", "é", "\uffff", "\U0001f600", LONG]), min_size=1, max_size=8)


def batch(texts: list[str | None], encoded: pa.DataType = ENCODED_TEXT) -> pa.RecordBatch:
    """Of each text several, as in a column that is worth a dictionary."""
    rows = texts * 40
    columns = {"n": pa.array(range(len(rows)), pa.int64()), "word": pa.array(rows, pa.string()).cast(encoded)}
    return pa.record_batch({**columns, "other": pa.array(rows[::-1], pa.string()).cast(encoded)})


def expected(texts: list[str | None]) -> tuple[int, str | None, str | None]:
    """Nulls, lowest and highest text; no bounds where one is too long: Arrow reads both or none."""
    valid = sorted((text for text in texts if text is not None), key=str.encode)
    low, high = (valid[0], valid[-1]) if valid and LONG not in (valid[0], valid[-1]) else (None, None)
    return 40 * texts.count(None), low, high


def stated(storage: LocalStorage, path: str) -> list[list[tuple[int, str | None, str | None]]]:
    """The same of the two columns, for each row group."""
    metadata = pq.read_metadata(storage.local_path(path))
    found = []
    for number in range(metadata.num_row_groups):
        columns = [metadata.row_group(number).column(at).statistics for at in (1, 2)]
        found.append([(each.null_count, each.min_raw, each.max_raw) for each in columns])
    return [[(nulls, text(low), text(high)) for nulls, low, high in group] for group in found]


def text(raw: bytes | str | None) -> str | None:
    return raw.decode() if isinstance(raw, bytes) else raw


@given(groups=st.lists(TEXTS, min_size=1, max_size=3))
def test_they_are_those_of_the_values(groups: list[list[str | None]], tmp_path_factory: pytest.TempPathFactory) -> None:
    storage = LocalStorage(str(tmp_path_factory.mktemp("texts")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skep_format.basefile.writer._MANY_TEXTS", 0)
        with BaseFileWriter(storage, "f.parquet", SCHEMA) as writer:
            for texts in groups:
                writer.write(batch(texts))
                writer.flush()
    assert stated(storage, "f.parquet") == [[expected(texts)] * 2 for texts in groups]
    assert pq.read_table(storage.local_path("f.parquet"))["word"].to_pylist() == [
        each for texts in groups for each in texts * 40
    ]


@given(before=TEXTS, data=st.data())
def test_of_columns_between_copied_ones(
    before: list[str | None], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    after = data.draw(st.permutations(before)) if data.draw(st.booleans()) else before[:1] * len(before)
    storage = LocalStorage(str(tmp_path_factory.mktemp("texts")))
    with BaseFileWriter(storage, "old.parquet", SCHEMA) as writer:
        writer.write(batch(before, pa.string()))
    with (
        open_base(storage, "old.parquet") as held,
        BaseFileWriter(storage, "new.parquet", SCHEMA) as writer,
    ):
        assert writer.takes(held)
        writer.copy(held, 0, changed=batch(list(after)).select(["word"]))
    assert stated(storage, "new.parquet") == [[expected(list(after)), expected(before)]]
