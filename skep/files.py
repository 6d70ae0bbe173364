"""Files of rows, by their endings, as one Arrow table: what `skep write` takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skep_table.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_AVRO_ROWS: Final = 50_000


def read_files(paths: Sequence[Path], done: Callable[[Path], object] = lambda _path: None) -> pa.Table:
    """The rows of all files, columns by name. InputError names a file that can't be read, or does not fit the others.

    `done` is told of each file when it has been read.
    """
    import pyarrow as pa

    tables = []
    for path in paths:
        reader = _READERS.get(path.suffix.lower())
        if reader is None:
            raise InputError(f"{path}: unknown kind of file", found=path.suffix, expected=", ".join(_READERS))
        try:
            tables.append(reader(path))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise InputError(f"{path} can't be read: {error}", path=str(path)) from error
        done(path)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        names = ", ".join(path.name for path in paths)
        raise InputError(f"the columns of {names} don't fit each other: {error}", found=names) from error


def expanded(paths: Iterable[Path]) -> list[Path]:
    """Folders as the files of known endings in them, in order. InputError for what is not there."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in _READERS and each.is_file())
            found += [each for each in inside if each.name[0] not in "._"]
        elif path.exists():
            found.append(path)
        else:
            raise InputError(f"{path} is not there", path=str(path))
    if not found:
        raise InputError("no files to read", expected=", ".join(_READERS))
    return found


def _parquet(path: Path) -> pa.Table:
    from pyarrow import parquet

    return parquet.read_table(path)


def _csv(path: Path) -> pa.Table:
    from pyarrow import csv

    return csv.read_csv(path)


def _json(path: Path) -> pa.Table:
    from pyarrow import json

    return json.read_json(path)


def _orc(path: Path) -> pa.Table:
    from pyarrow import orc

    return orc.read_table(path)


def _avro(path: Path) -> pa.Table:
    import itertools

    import fastavro
    import pyarrow as pa

    from skep_table.schema.arrow import to_arrow
    from skep_table.schema.avro import parse_avro

    with path.open("rb") as file:
        records = fastavro.reader(file)
        schema = to_arrow(parse_avro(records.metadata["avro.schema"]))
        batches = []
        while part := list(itertools.islice(records, _AVRO_ROWS)):
            batches.append(pa.RecordBatch.from_pylist(part, schema))
    return pa.Table.from_batches(batches, schema)


_READERS: Final[dict[str, Callable[[Path], pa.Table]]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _json,
    ".avro": _avro,
    ".orc": _orc,
}
