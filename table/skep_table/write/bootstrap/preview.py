"""What a bootstrap would do, by arithmetic: nothing but listings and footers is read."""

from __future__ import annotations

from typing import Any, Final

from skep_format.basefile import BaseFileOptions
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP, folders_left
from skep_table.table import HudiTable
from skep_table.write.bootstrap.options import BootstrapMode
from skep_table.write.bootstrap.run import check_apart, check_fits, refuse_commits
from skep_table.write.bootstrap.source import SourceData, SourceFile, SourceFolder

_FOOTER_BYTES: Final = 2048
_NUMBER_BYTES: Final = 5  # of a row, for its number in the commit


def check_planned(table: HudiTable, source: SourceData) -> None:
    """What a bootstrap of a table that is there would raise before it writes."""
    check_apart(table, source)
    refuse_commits(table, (METADATA_BOOTSTRAP,) if folders_left(table) else ())
    check_fits(table, source)


def folders_of(source: SourceData, files: BaseFileOptions) -> list[dict[str, Any]]:
    """A row for each folder: what is read of it, and about what is written."""
    return [
        {
            "folder": folder.path,
            "partition": folder.partition_path,
            "mode": folder.mode.value,
            "files": len(folder.files),
            "rows": folder.rows,
            "bytes_read": sum(_read(folder, file) for file in folder.files),
            "bytes_written": sum(_written(folder, file, files) for file in folder.files),
        }
        for folder in source.folders
    ]


def _read(folder: SourceFolder, file: SourceFile) -> int:
    return file.size_bytes if folder.mode is BootstrapMode.FULL_RECORD else file.key_bytes


def _written(folder: SourceFolder, file: SourceFile, files: BaseFileOptions) -> int:
    """Keys are written in the meta columns, whose other values hardly take anything, and in the filter."""
    meta = file.key_bytes + file.rows * _NUMBER_BYTES + files.filter_bytes(file.rows) + _FOOTER_BYTES
    return meta + (file.size_bytes if folder.mode is BootstrapMode.FULL_RECORD else 0)
