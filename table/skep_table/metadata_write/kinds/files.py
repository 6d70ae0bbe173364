"""The partition `files`: which files the table has."""

from __future__ import annotations

from collections.abc import Mapping

from skep_table.metadata_table.keys import group_id, group_set_of
from skep_table.metadata_table.partitions import FILES, SINGLE
from skep_table.metadata_table.records.files import files_listed, files_of_clean, files_of_commit
from skep_table.metadata_write.kinds.contract import KeptKind
from skep_table.metadata_write.making.spreading import Build, Groups


def _contents(build: Build) -> Mapping[str, Groups]:
    if FILES not in build.wanted.partitions:
        return {}
    puts = files_listed(build.files).puts
    return {FILES: {group_id(group_set_of(FILES), 0): lambda: iter([puts])}}


KEPT = KeptKind(
    SINGLE[FILES],
    of_commit=lambda written: [files_of_commit(written.metadata)],
    of_clean=lambda cleaned: [files_of_clean(cleaned.metadata)],
    contents=_contents,
)
