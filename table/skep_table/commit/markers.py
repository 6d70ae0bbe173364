"""Markers: an empty file announces each data file before it is opened, so that nothing of a failed write is overlooked.

Format guide 4.5. A commit of few files has direct markers, one of many lists them in files as Hudi's timeline server
does (`MARKERS0` …): those of one commit are of one form, since readers look for one. Beside the marker folder (inside
it, Hudi would take every file for a marker) lies a sign that the commit still takes files. Markers are durable before
the files that they announce may be; the sign is not, since no writer outlives a power loss.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

from skep_table.errors import AlreadyExistsError, LeaseLostError
from skep_table.names import Marker, MarkerType, marker_folder
from skep_table.storage import Storage

_SERVER_TYPE_FILE = "MARKERS.type"
_SERVER_PREFIX = "MARKERS"
_SERVER_TYPE = b"TIMELINE_SERVER_BASED"
# A writer that was killed while it made a marker left a file that was to become one: its data file is not there.
# Hadoop's local file system lays check sums beside the markers of JVM writers.
_NO_MARKERS = (".tmp", ".crc")


def _sign(instant_time: str) -> str:
    return f"{marker_folder(instant_time)}.open"


def open_markers(storage: Storage, instant_time: str, claim: str = "") -> None:
    """Before the first task starts. `claim` says who is at it, where several may be."""
    storage.create_exclusive(_sign(instant_time), claim.encode(), durable=False)


def claimed_by(storage: Storage, instant_time: str) -> str | None:
    """What the instant was opened with; None when it is not open."""
    try:
        return storage.read(_sign(instant_time)).decode()
    except FileNotFoundError:
        return None


def close_markers(storage: Storage, instant_time: str) -> None:
    """After this no task opens a file any more, and one that did finds out when it closes it."""
    storage.delete(_sign(instant_time), durable=False)


def ensure_open(storage: Storage, instant_time: str, data_path: str) -> None:
    """LeaseLostError when the commit has ended: a task that outlived it must not leave a file."""
    if not storage.exists(_sign(instant_time)):
        raise LeaseLostError(
            f"instant {instant_time} has ended: {data_path} is not written any more",
            instant=instant_time,
            path=data_path,
        )


def create_marker(storage: Storage, marker: Marker, *, listed: bool = False) -> None:
    """Announces a data file; `listed`: of a commit that lists its markers. LeaseLostError when the commit has ended."""
    ensure_open(storage, marker.instant_time, marker.data_path)
    if listed:
        _write_list(storage, [marker])
    else:
        try:
            storage.create_exclusive(marker.path, b"")
        except AlreadyExistsError:
            if marker.type is not MarkerType.APPEND:
                raise
    # Once more: whoever ends the commit takes the sign away first and lists the markers after that.
    ensure_open(storage, marker.instant_time, marker.data_path)


def can_be_listed(marker: Marker) -> bool:
    """Whether it is one line for whoever reads the list."""
    return marker.line.splitlines() == [marker.line]


def list_ahead(storage: Storage, markers: Sequence[Marker]) -> None:
    """Announces many data files of one instant in one go. All others of the instant are to be listed from then on.

    LeaseLostError when the commit has ended.
    """
    first = markers[0]
    ensure_open(storage, first.instant_time, first.data_path)
    _write_list(storage, markers)
    with contextlib.suppress(AlreadyExistsError):
        storage.create_exclusive(f"{marker_folder(first.instant_time)}/{_SERVER_TYPE_FILE}", _SERVER_TYPE)
    ensure_open(storage, first.instant_time, first.data_path)


def _write_list(storage: Storage, markers: Sequence[Marker]) -> None:
    text = "".join(f"{marker.line}\n" for marker in markers).encode()
    while True:
        number = random.randrange(2**31)  # Hudi's server numbers its files
        try:
            return storage.create_exclusive(f"{marker_folder(markers[0].instant_time)}/{_SERVER_PREFIX}{number}", text)
        except AlreadyExistsError:
            continue


def list_markers(storage: Storage, instant_time: str) -> list[Marker] | None:
    """All markers of an instant, None when it has no marker folder."""
    folder = marker_folder(instant_time)
    files = storage.list_prefix(folder, recursive=True)
    if not files:
        return None
    below = [file.path[len(folder) + 1 :] for file in files]
    if _SERVER_TYPE_FILE in below:
        lines = [
            line
            for name in below
            if name.startswith(_SERVER_PREFIX) and name != _SERVER_TYPE_FILE
            for line in storage.read(f"{folder}/{name}").decode().splitlines()
            if line
        ]
        return [Marker.parse(instant_time, line) for line in dict.fromkeys(lines)]
    markers = [name for name in below if ".marker." in name and not name.endswith(_NO_MARKERS)]
    return [Marker.parse(instant_time, name) for name in markers]


def delete_markers(storage: Storage, instant_time: str) -> None:
    storage.delete(_sign(instant_time), durable=False)
    storage.delete_folder(marker_folder(instant_time), durable=False)
