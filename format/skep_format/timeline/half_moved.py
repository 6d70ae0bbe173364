"""A timeline in layout 1 of which some instants lie in the folder of layout 2: a change of version was interrupted.

Hudi moves one instant file after the other when it upgrades a table, and states the version last. Meanwhile, and when
it died in between, the files that are left look like a shorter timeline: rows of the newest commits would be missing
without a word, and their files count as those of failed writes.
"""

from __future__ import annotations

from typing import Final

from skep_format.errors import TableVersionError
from skep_format.storage import Storage
from skep_format.timeline.layout import MOVED, layout_2
from skep_format.timeline.timeline import Timeline

_NEWER: Final = layout_2()


def refuse_half_moved(storage: Storage, timeline: Timeline, name: str) -> None:
    """TableVersionError where instants lie in the folder of the newer layout only. A request only where it is there."""
    if _NEWER.folder.rpartition("/")[2] not in (timeline.files.folders or ()):
        return
    files = storage.list_folder(_NEWER.folder).files
    if any(file.name == MOVED for file in files):
        return  # a copy of skep's: the table's own timeline is whole
    parsed = (_NEWER.parse(file.name) for file in files)
    times = {instant.requested_time for instant in parsed if instant is not None}
    moved = sorted(time for time in times if not timeline.contains(time))
    if moved:
        raise TableVersionError(
            f"table {name} at {storage.root} is being upgraded or downgraded, or that was interrupted: {len(moved)}"
            f" instants, {moved[0]} among them, lie in {_NEWER.folder} already",
            hint="try again; if nobody is changing its version any more, let the writer that began it finish it",
            table=name,
            path=storage.root,
            found=f"{_NEWER.folder}/{moved[0]}…",
            expected="all instants in one layout",
        )
