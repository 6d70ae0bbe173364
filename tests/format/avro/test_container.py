"""Container files of Avro: what is written is read again, and what is none is an error that names the file."""

from __future__ import annotations

import io
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from skep.files.inputs import inputs_of, read_files
from skep_format.avro.container import Container, container
from skep_format.errors import CorruptFileError, InputError
from skep_format.schema.arrow import from_arrow
from skep_stream.files.typed_rows import avro_rows

ROWS = pa.table({"id": [1, 2, 3], "tags": [["a"], None, []], "at": pa.array([1, None, 3], pa.timestamp("us", "UTC"))})
DATA = container(from_arrow(ROWS.schema), ROWS)


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
        avro_rows("a.avro", data)
    with pytest.raises((InputError, CorruptFileError), match=r"a\.avro"):
        list(read_files(inputs_of([tmp_path / "a.avro"])).batches())
