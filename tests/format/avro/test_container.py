"""Container files of Avro: what is written is read again, and what is none is an error that names the file."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from skep.files.inputs import inputs_of, read_files
from skep_format.avro.container import Container, container
from skep_format.errors import CorruptFileError, InputError
from skep_format.rowfiles.typed_rows import typed_rows
from skep_format.schema.arrow import from_arrow

ROWS = pa.table({"id": [1, 2, 3], "tags": [["a"], None, []], "at": pa.array([1, None, 3], pa.timestamp("us", "UTC"))})
DATA = container(from_arrow(ROWS.schema), ROWS)
NESTED = {
    "type": "record",
    "name": "nested",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["string", "null"]},
        {"name": "numbers", "type": {"type": "array", "items": "long"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", {"type": "array", "items": "double"}]}},
        {
            "name": "parts",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "part",
                    "fields": [
                        {"name": "on", "type": "boolean"},
                        {"name": "texts", "type": {"type": "array", "items": "string"}},
                    ],
                },
            },
        },
    ],
}


def test_what_is_written_is_read() -> None:
    found = Container(io.BytesIO(DATA), "a.avro")
    assert pa.Table.from_batches(found.batches(), found.schema).to_pylist() == ROWS.to_pylist()
    assert next(fastavro.reader(io.BytesIO(DATA)))["id"] == 1


@pytest.mark.parametrize("data", [b"", b"no Avro", DATA[:20], DATA[:-8], DATA[:-40] + b"x" * 40])
def test_a_damaged_file_is_an_error_of_every_reader(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"a\.avro"), (tmp_path / "a.avro").open("rb") as file:
        list(Container(file, "a.avro").batches())
    with pytest.raises(InputError, match=r"a\.avro"):
        typed_rows("avro", "a.avro", data)
    with pytest.raises((InputError, CorruptFileError), match=r"a\.avro"):
        list(read_files(inputs_of([tmp_path / "a.avro"])).batches())


def nested(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": at - 7,
            "name": None if at % 3 else f"é{at}" * (at % 90),
            "numbers": list(range(-at, at * at, 97))[: 300 if at % 50 else 3000],
            "counts": {f"k{each}": [0.5] * each if each % 3 else None for each in range(at % 7)},
            "parts": [{"on": each % 2 == 0, "texts": ["", "x" * each]} for each in range(at % 5)],
        }
        for at in range(count)
    ]


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("sync_interval", [1, 16_000, 1 << 24])
def test_blocks_are_read_by_columns(codec: str, sync_interval: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file, rows = io.BytesIO(), nested(600)
    fastavro.writer(file, NESTED, rows, codec, sync_interval)
    monkeypatch.delattr(fastavro, "reader")  # which makes a dict of each row
    file.seek(0)
    read = Container(file, "a.avro")
    found = pa.Table.from_batches(read.batches(), read.schema)
    assert found.schema.names == list(rows[0])
    assert [{**row, "counts": dict(row["counts"])} for row in found.to_pylist()] == rows


def test_the_search_for_records_makes_no_calls_for_each() -> None:
    def calls(rows: int) -> int:
        table = pa.table({"id": range(rows), "tags": [["a"] * (1 + at % 3) for at in range(rows)], "x": ["é"] * rows})
        data, found = container(from_arrow(table.schema), table), list[str]()
        sys.setprofile(lambda _frame, event, _what: found.append(event) if event == "call" else None)
        try:
            assert sum(map(len, Container(io.BytesIO(data), "a.avro").batches())) == rows
        finally:
            sys.setprofile(None)
        return len(found)

    calls(1)  # which imports modules
    assert calls(4000) < calls(400) + 100
