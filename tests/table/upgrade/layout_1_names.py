"""Completed writes of layout 2 as files of layout 1: Hudi reads them, and calls such instants legacy."""

from __future__ import annotations

import os
from pathlib import Path

from skep_format.timeline.layout import layout_1
from skep_table.table import HudiTable
from skep_table.upgrade.instants import modification_of_time


def name_as_in_layout_1(table: HudiTable) -> None:
    """Names without completion time, metadata in JSON; the files are modified when the writes completed."""
    layout, folder = layout_1(), Path(table.storage.root)
    for instant in table.timeline.data().completed():
        source = folder / table.layout.path(instant)
        target = source.with_name(layout.file_name(instant))
        target.write_bytes(layout.encode_commit(table.commit_metadata(instant)))
        assert instant.completion_time is not None
        completed_ms = modification_of_time(instant.completion_time, table.config.timezone)
        os.utime(target, ns=(completed_ms * 10**6, completed_ms * 10**6))
        source.unlink()
