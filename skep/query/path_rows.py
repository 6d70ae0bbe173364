"""Rows of files that a query names by their path, in the columns that Spark's readers give them without options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from skep.query.engine_errors import engine_errors
from skep.query.rows import columns_among
from skep.query.spark import SparkHolder
from skep_format.errors import InputError
from skep_format.schema.types import quoted
from skep_table.write.input.row_input import RereadInput

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame

t: Final = pa.types
_PARQUET: Final = "parquet"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LOCAL: Final = "file:"
_PATTERN: Final = re.compile(r"[*?\[\]{}]")
_HIDDEN: Final = ("_", ".")
_ALIKE: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    *(t.is_boolean, t.is_signed_integer, t.is_float32, t.is_float64, t.is_string, t.is_binary),
    *(t.is_decimal128, t.is_date32),
)
"""Of columns that Arrow and Spark read alike, beside times in UTC to the microsecond."""


@dataclass(frozen=True, slots=True)
class SparkFiles:
    """Files that Spark alone reads as it does: of texts it infers the columns, of folders those of partitions."""

    format: str
    path: str
    spark: SparkHolder

    def to_spark(self) -> DataFrame:
        """A frame of the lake's session. InputError, by Spark's own words, for files that it does not read."""
        with engine_errors():
            return self.spark.session.read.format(self.format).load(self.path)


class ParquetRows(RereadInput):
    """Parquet files with the same columns in one folder, which Arrow and Spark read alike."""

    def __init__(self, path: str, dataset: Dataset, spark: SparkHolder, columns: tuple[str, ...] | None = None) -> None:
        whole: pa.Schema = dataset.schema
        schema = whole if columns is None else pa.schema([whole.field(name) for name in columns])
        super().__init__(schema, lambda: dataset.to_batches(columns=schema.names))
        self._path, self._dataset, self._spark = path, dataset, spark

    def narrowed(self, names: frozenset[str] | None) -> ParquetRows:
        """With the columns among `names` (in lower case) only, one at least; None keeps all."""
        if names is None:
            return self
        return ParquetRows(self._path, self._dataset, self._spark, columns_among(self.schema.names, names))

    def to_spark(self) -> DataFrame:
        """A frame of the lake's session, whose tasks read the files."""
        return SparkFiles(_PARQUET, self._path, self._spark).to_spark().select(*map(quoted, self.schema.names))


def files_at(format: str, path: str, spark: SparkHolder) -> ParquetRows | SparkFiles:
    """The rows of files of a format of Spark. InputError for a local path that is not there."""
    local = path.removeprefix(_LOCAL) if path.startswith(_LOCAL) else path
    if _SCHEME.match(local) or _PATTERN.search(local):
        return SparkFiles(format, path, spark)
    if not Path(local).exists():
        raise InputError(f"{format}.`{path}`: there is no such file or folder", path=path, found=path)
    dataset = _parquet(Path(local)) if format == _PARQUET else None
    return SparkFiles(format, path, spark) if dataset is None else ParquetRows(path, dataset, spark)


def _parquet(path: Path) -> Dataset | None:
    """None where Spark may read other columns."""
    from pyarrow import dataset, parquet

    inside = [path] if path.is_file() else sorted(each for each in path.iterdir() if each.name[0] not in _HIDDEN)
    if not inside or not all(each.is_file() for each in inside):
        return None
    try:
        schemas = [parquet.read_schema(each) for each in inside]
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"parquet.`{path}` can't be read: {error}", path=str(path)) from error
    fields = [pa.field(field.name, _plain(field.type)) for field in schemas[0]]
    if any(each.names != schemas[0].names or each.types != schemas[0].types for each in schemas):
        return None
    names = {field.name.lower() for field in fields}
    if len(names) < len(fields) or not all(map(_is_alike, (field.type for field in fields))):
        return None
    return dataset.dataset([str(each) for each in inside], pa.schema(fields), format=_PARQUET)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Texts and bytes of whatever layout in memory, which files do not have."""
    if t.is_large_string(kind) or t.is_string_view(kind):
        return pa.string()
    return pa.binary() if t.is_large_binary(kind) or t.is_binary_view(kind) else kind


def _is_alike(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _ALIKE) or kind == pa.timestamp("us", "UTC")
