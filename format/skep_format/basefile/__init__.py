"""Base files: Parquet and ORC, with the footer entries that Hudi's writers look for."""

from skep_format.basefile.footer import BaseFileFooter, read_footer
from skep_format.basefile.matching import RowCondition
from skep_format.basefile.options import BaseFileOptions
from skep_format.basefile.reader import OpenBaseFile, open_base, read_base
from skep_format.basefile.value_filters import ValueFilters
from skep_format.basefile.writer import (
    BaseFileWriter,
    ColumnRange,
    WrittenFile,
    bytes_of,
    can_copy,
    parquet_bytes,
    without_meta_values,
)

__all__ = [
    "BaseFileFooter",
    "BaseFileOptions",
    "BaseFileWriter",
    "ColumnRange",
    "OpenBaseFile",
    "RowCondition",
    "ValueFilters",
    "WrittenFile",
    "bytes_of",
    "can_copy",
    "open_base",
    "parquet_bytes",
    "read_base",
    "read_footer",
    "without_meta_values",
]
