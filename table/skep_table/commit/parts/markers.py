"""Markers: an empty file names each data file before it is opened, so that all files of a failed write are found.

Format guide 4.5. A commit of few files has direct markers, one of many lists them in files as Hudi's timeline server
does (`MARKERS0` …): those of one commit have one form, since readers expect one. The open sign, a file beside the
marker folder, shows that the commit still accepts files; inside the folder Hudi would read it as a marker. Markers are
durable before the files that they name may be; the sign is not, since no writer survives a power loss.
"""

from __future__ import annotations

import contextlib
import os
import random
import weakref
from collections.abc import Callable, Sequence

from skep_format.errors import AlreadyExistsError, LeaseLostError
from skep_format.instant_time import InstantTime
from skep_format.names import Marker, MarkerType, marker_folder
from skep_format.storage import FileStatus, Storage

_SERVER_TYPE_FILE = "MARKERS.type"
_SERVER_PREFIX = "MARKERS"
_SERVER_TYPE = b"TIMELINE_SERVER_BASED"
# A writer that was killed while it made a marker left a file that was to become one: its data file is not there.
# Hadoop's local file system lays check sums beside the markers of JVM writers.
_NO_MARKERS = (".tmp", ".crc")


def _sign(instant_time: InstantTime) -> str:
    return f"{marker_folder(instant_time)}.open"


_open_here: dict[tuple[int, str, InstantTime], weakref.WeakMethod[Callable[[], None]]] = {}
"""Commits of this process (number, base path, instant) that take files, each with the check of its heartbeat."""


def open_markers(
    storage: Storage, instant_time: InstantTime, claim: str = "", *, ensure_alive: Callable[[], None] | None = None
) -> None:
    """Before the first task starts. `claim` identifies the executor, where there may be several.

    `ensure_alive` raises when other writers may have taken this process for dead. With it, the tasks of this process
    need not check the sign: no other process ends a commit whose heartbeat is renewed.
    """
    storage.create_exclusive(_sign(instant_time), claim.encode(), durable=False)
    if ensure_alive is not None:
        _open_here[os.getpid(), storage.root, instant_time] = weakref.WeakMethod(ensure_alive)


def claimed_by(storage: Storage, instant_time: InstantTime) -> str | None:
    """The claim that the instant was opened with; None when it is not open."""
    try:
        return storage.read(_sign(instant_time)).decode()
    except FileNotFoundError:
        return None


def close_markers(storage: Storage, instant_time: InstantTime) -> None:
    """After this no task opens a file any more, and one that has opened a file detects it when it closes the file."""
    end_here(storage, instant_time)
    storage.delete(_sign(instant_time), durable=False)


def end_here(storage: Storage, instant_time: InstantTime) -> None:
    """From now on the tasks of this process check the sign, too."""
    _open_here.pop((os.getpid(), storage.root, instant_time), None)


def ensure_open(storage: Storage, instant_time: InstantTime, data_path: str) -> None:
    """LeaseLostError when the commit has ended: a task that outlived it must not leave a file."""
    here = _open_here.get((os.getpid(), storage.root, instant_time))
    if here is not None and (ensure_alive := here()) is not None:
        ensure_alive()
    elif not storage.exists(_sign(instant_time)):
        raise LeaseLostError(
            f"instant {instant_time} has ended: {data_path} is not written any more",
            instant=instant_time,
            path=data_path,
        )


def create_marker(storage: Storage, marker: Marker, *, listed: bool = False) -> None:
    """Creates the marker of a data file. LeaseLostError when the commit has ended.

    `listed`: the markers of this commit are lines in files.
    """
    ensure_open(storage, marker.instant_time, marker.data_path)
    if listed:
        _write_list(storage, [marker])
    else:
        try:
            storage.create_exclusive(marker.path, b"")
        except AlreadyExistsError:
            if marker.type is not MarkerType.APPEND:
                raise
    # After the marker: the process that ends the commit deletes the sign first, and then lists the markers.
    ensure_open(storage, marker.instant_time, marker.data_path)


def can_be_listed(marker: Marker) -> bool:
    """Whether it can be a line of a list: its path has no line break."""
    return marker.line.splitlines() == [marker.line]


def list_ahead(storage: Storage, markers: Sequence[Marker]) -> None:
    """Creates the markers of many data files with one call. All other markers of the instant are listed from then on.

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


def list_markers(storage: Storage, instant_time: InstantTime) -> list[Marker] | None:
    """All markers of an instant, None when it has no marker folder."""
    files = marker_files(storage, instant_time)
    return parse_markers(storage, instant_time, files) if files else None


def marker_files(storage: Storage, instant_time: InstantTime) -> list[FileStatus]:
    """All files of an instant's marker folder."""
    return storage.list_prefix(marker_folder(instant_time), recursive=True)


def parse_markers(storage: Storage, instant_time: InstantTime, files: Sequence[FileStatus]) -> list[Marker]:
    """The markers in the files of a marker folder; those that are listed in files are read."""
    folder = marker_folder(instant_time)
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


def delete_markers(storage: Storage, instant_time: InstantTime) -> None:
    """Deletes the open sign, then the markers of an instant; none need be there."""
    storage.delete(_sign(instant_time), durable=False)
    storage.delete_folder(marker_folder(instant_time), durable=False)
