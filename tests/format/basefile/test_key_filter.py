"""The text of the Bloom filter in a footer's bytes: it is apart from the other entries while they are read and written,
and the bytes of the file are those of a writer that has it among them."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.basefile import BaseFileOptions, BaseFileWriter, keys, read_footer
from skep_format.basefile.key_filter import with_filter, without_filter
from skep_format.errors import CorruptFileError
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage

ROWS = pa.table({"word": ["a", "b", keys.BLOOM_FILTER]})


def footer_with(entries: dict[str, str]) -> bytes:
    """The end of a file with these entries, in their order."""
    file = io.BytesIO()
    with pq.ParquetWriter(file, ROWS.schema, store_schema=False) as writer:
        writer.write_table(ROWS)
        writer.add_key_value_metadata(entries)
    data = file.getvalue()
    return data[-8 - int.from_bytes(data[-8:-4], "little") :]


TEXTS = st.text(st.sampled_from("aZ9+/=é"), min_size=1, max_size=300)
OTHERS = st.dictionaries(st.sampled_from(["a", "parquet.avro.schema", "z"]), TEXTS)


@given(before=OTHERS, text=TEXTS, after=OTHERS)
def test_what_is_taken_out_and_put_in_is_the_footer(before: dict[str, str], text: str, after: dict[str, str]) -> None:
    tail = footer_with({**before, keys.BLOOM_FILTER: text, **after})
    left, found = without_filter(b"bytes before it" + tail)
    assert found == text.encode()
    assert left == footer_with({**before, keys.BLOOM_FILTER: "", **after})
    assert b"".join(with_filter(b"bytes before it" + left, found)) == b"bytes before it" + tail


@given(entries=OTHERS)
def test_a_footer_without_a_filter_stays(entries: dict[str, str]) -> None:
    tail = footer_with(entries)
    assert without_filter(tail) == (tail, None)
    with pytest.raises(ValueError, match="not found"):
        with_filter(tail, b"text")


def test_no_second_filter_is_put_in() -> None:
    with pytest.raises(ValueError, match="has a filter"):
        with_filter(footer_with({keys.BLOOM_FILTER: "one"}), b"two")


def written(storage: LocalStorage, path: str, **options: int) -> None:
    names = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path",
             "_hoodie_file_name")  # fmt: skip
    rows = pa.table({name: [f"{name}{at}" for at in range(50)] for name in names} | {"n": list(range(50))})
    with BaseFileWriter(storage, path, from_arrow(rows.schema), BaseFileOptions(**options)) as writer:
        writer.write(rows)


def test_a_text_that_looks_like_the_entry_is_none_of_it(tmp_path: Path) -> None:
    """In a value behind the entry: the search from the end finds it first."""
    entry = b"\x18" + bytes([len(keys.BLOOM_FILTER)]) + keys.BLOOM_FILTER.encode() + b"\x18\x02ab"
    storage = LocalStorage(str(tmp_path))
    file = io.BytesIO()
    with pq.ParquetWriter(file, ROWS.schema, store_schema=False) as writer:
        writer.write_table(ROWS)
        writer.add_key_value_metadata({keys.BLOOM_FILTER: "the filter", "z": entry.decode()})
    storage.replace_atomic("f.parquet", file.getvalue())
    footer = read_footer(storage, "f.parquet")
    assert footer.key_filter == b"the filter"
    assert footer.entries["z"] == entry.decode()


@given(data=st.data())
def test_damaged_bytes_are_an_error_or_the_same(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """As where the footer is parsed as a whole."""
    storage = LocalStorage(str(tmp_path_factory.mktemp("damaged")))
    written(storage, "f.parquet", bloom_entries=60)
    whole = bytearray(storage.read("f.parquet"))
    size = int.from_bytes(whole[-8:-4], "little")
    at = data.draw(st.integers(len(whole) - 8 - size, len(whole) - 9))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    storage.replace_atomic("f.parquet", bytes(whole))
    try:
        plain: dict[bytes, bytes] | None = dict(pq.read_metadata(pa.BufferReader(bytes(whole))).metadata or {})
    except (pa.ArrowException, OSError, ValueError):
        plain = None
    try:
        footer = read_footer(storage, "f.parquet")
    except CorruptFileError:
        return
    assert plain is not None
    stated = plain.get(keys.BLOOM_FILTER.encode()) or plain.get(keys.OLD_BLOOM_FILTER.encode()) or b""
    assert (footer.key_filter or b"").decode("utf-8", "replace") == stated.decode("utf-8", "replace")
