"""Incremental queries: the commits of a range, the files they wrote, and the newest version of each row within the
range.

The range is open at its begin and closed at its end: requested times in layout 1, completion times in layout 2. It may
begin in the archived part of the timeline. Only files that commits of the range wrote are read, so a row that an older
slice would have beaten shows up; replaced file groups are left out. A range from an archived begin to the present is
answered from the table as it is, which has the newest version of each row.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from skep_table.errors import InputError
from skep_table.query.options import FALL_BACK_TO_FULL_SCAN
from skep_table.query.request import BEGINNING, ReadRequest, instant_text
from skep_table.runner import ThreadRunner
from skep_table.slices.commit_times import CommitTimes
from skep_table.storage import FileStatus
from skep_table.table import HudiTable
from skep_table.timeline.instant import DATA_ACTIONS, Instant
from skep_table.timeline.metadata import CommitMetadata
from skep_table.view import FileSlice, FileView
from skep_table.view.facts import load_facts


def instants_between(table: HudiTable, request: ReadRequest) -> tuple[Instant, ...]:
    """The completed writes in the request's range, by requested time."""
    since, until = _range(table, request)
    timeline = table.timeline.data().completed()
    instants = list(timeline)
    if since < min(map(_moment, instants), default=since + "~"):
        instants += filter(_writes, table.timeline.archived())
    chosen = (instant for instant in instants if _inside(instant, since, until))
    return tuple(sorted(chosen, key=lambda instant: instant.requested_time))


def commits_of_rows(table: HudiTable, request: ReadRequest, instants: Sequence[Instant]) -> CommitTimes:
    """The commits whose rows are answered, of those that the files of `instants` hold.

    In layout 1 whatever lies before the start of the active timeline, also commits that the archive has lost.
    """
    times = (instant.requested_time for instant in instants)
    if table.timeline.layout.has_completion_times:
        return CommitTimes.of(times)
    return CommitTimes.of(times, *_archived_range(table, request))


def _archived_range(table: HudiTable, request: ReadRequest) -> tuple[str, str]:
    """The part of the range before the start of the active timeline, exclusive at both ends."""
    since, until = _range(table, request)
    start = table.timeline.first_time or ""
    return since, start if until is None else min(start, f"{until}~")


def check_known(table: HudiTable, instants: Sequence[Instant], request: ReadRequest) -> None:
    """InputError for files that commits of the range wrote of which neither timeline nor archive knows."""
    after, before = _archived_range(table, request)
    if table.timeline.layout.has_completion_times or after >= before:
        return
    known = {instant.requested_time for instant in instants}
    unknown = _unknown_files(table, request, known, after, before)
    if unknown:
        raise InputError(
            f"the archive has no commit that wrote {unknown[0]}, within the range of the query; ask for a later range",
            hint=f"{FALL_BACK_TO_FULL_SCAN.key}=true answers an incremental query from the table as it is",
            path=unknown[0],
            found=len(unknown),
        )


def _unknown_files(
    table: HudiTable, request: ReadRequest, known: Collection[str], after: str, before: str
) -> list[str]:
    """The base files of instants between two that are not known."""
    view = table.view(metadata=request.metadata)
    slices = (slice_ for path in view.partitions() for slice_ in view.all_slices(path))
    times = ((slice_.base_file.path, slice_.base_file.name.instant_time) for slice_ in slices if slice_.base_file)
    return [path for path, time in times if after < time < before and time not in known]


def _range(table: HudiTable, request: ReadRequest) -> tuple[str, str | None]:
    """After which time, and up to which: instants of the table. InputError when the end lies before the begin."""
    zone = table.config.timezone.value
    since = instant_text(request.since, zone) if request.since is not None else BEGINNING
    until = instant_text(request.until, zone) if request.until is not None else None
    if until is not None and until < since:
        raise InputError(
            f"until ({until}) lies before since ({since})", option="until", found=until, expected=f"≥ {since}"
        )
    return since, until


def _inside(instant: Instant, since: str, until: str | None) -> bool:
    return since < _moment(instant) and (until is None or _moment(instant) <= until)


def _moment(instant: Instant) -> str:
    """The time by which a range takes in an instant."""
    return instant.completion_time or instant.requested_time


def _writes(instant: Instant) -> bool:
    return instant.is_completed and instant.action in DATA_ACTIONS


class WrittenFiles:
    """The files that some commits wrote, as a listing that a view is made over."""

    def __init__(self, commits: Iterable[CommitMetadata]) -> None:
        self._files: dict[str, list[FileStatus]] = defaultdict(list)
        for commit in commits:
            for partition, stats in commit.partition_to_write_stats.items():
                self._files[partition] += (FileStatus(stat.path, stat.file_size_in_bytes, 0) for stat in stats)

    def partitions(self) -> list[str]:
        return sorted(self._files)

    def files(self, partition_path: str) -> list[FileStatus]:
        return self._files.get(partition_path, [])


def view_of_changes(table: HudiTable, instants: Sequence[Instant], request: ReadRequest) -> FileView:
    """The file groups that `instants` wrote to, made of their files alone, as of the last of them.

    Where these files are not all there any more (archived instants, cleaned files), and the request or the table's
    release says so, the whole table as it is now stands in: rows that were changed since are missing from the answer.
    Raises InputError for commits that are lost.
    """
    fall_back = request.full_scan if request.full_scan is not None else table.timeline.layout.has_completion_times
    if fall_back and _start_is_archived(table, instants, request):
        return table.view(metadata=request.metadata)
    if not table.timeline.layout.has_completion_times and _start_is_archived(table, instants, request):
        if request.until is None and _has_archived(table, instants, request):
            return table.view(metadata=request.metadata)  # nothing was changed after the range
        check_known(table, instants, request)
    listing = WrittenFiles(map(table.commit_metadata, instants))
    if fall_back and not _all_there(table, listing, request):
        return table.view(metadata=request.metadata)
    last = instants[-1].requested_time if instants else ""
    return FileView(listing, lambda: load_facts(table, last, ThreadRunner()))


def _has_archived(table: HudiTable, instants: Sequence[Instant], request: ReadRequest) -> bool:
    """Whether commits of the range are archived, be they known or lost."""
    if any(table.timeline.is_archived(instant.requested_time) for instant in instants):
        return True
    return bool(_unknown_files(table, request, (), *_archived_range(table, request)))


def _start_is_archived(table: HudiTable, instants: Sequence[Instant], request: ReadRequest) -> bool:
    if table.timeline.layout.has_completion_times:
        return any(table.timeline.is_archived(instant.requested_time) for instant in instants)
    since = instant_text(request.since or BEGINNING, table.config.timezone.value)
    return table.timeline.is_archived(since)


def _all_there(table: HudiTable, listing: WrittenFiles, request: ReadRequest) -> bool:
    there = table.view(metadata=request.metadata).listing
    return all(
        {file.name for file in listing.files(partition)} <= {file.name for file in there.files(partition)}
        for partition in listing.partitions()
    )


def check_not_cleaned_away(table: HudiTable, slices: Sequence[FileSlice], request: ReadRequest) -> None:
    """Raises InputError when a file that an incremental query needs is not there any more."""
    there = table.view(metadata=request.metadata).listing
    by_partition: dict[str, list[FileSlice]] = defaultdict(list)
    for found in slices:
        by_partition[found.partition_path].append(found)
    for partition, group in by_partition.items():
        names = {file.name for file in there.files(partition)}
        for found in group:
            paths = [log.path for log in found.log_files]
            if found.base_file is not None:
                paths.append(found.base_file.path)
            gone = next((path for path in paths if path.rpartition("/")[2] not in names), None)
            if gone is not None:
                raise InputError(
                    f"the cleaner has removed {gone}, which the query needs; ask for a later range",
                    hint=f"{FALL_BACK_TO_FULL_SCAN.key}=true answers from the table as it is",
                    path=gone,
                )


def path_matches(slice: FileSlice, storage_root: str, glob: str) -> bool:
    """Whether a slice's base file (else its newest log file) lies on a path that ends in what `glob` matches."""
    path = slice.base_file.path if slice.base_file else slice.log_files[-1].path
    return _hadoop_glob("*" + glob).fullmatch(f"{storage_root}/{path}") is not None


def _hadoop_glob(glob: str) -> re.Pattern[str]:
    """Hadoop's globs: `*` and `?` cross slashes, `{a,b}` are alternatives, `[…]` classes, a backslash quotes."""
    parts, depth, characters = [], 0, iter(glob)
    for character in characters:
        if character == "\\":
            parts.append(re.escape(next(characters, "\\")))
        elif character in "*?":
            parts.append({"*": ".*", "?": "."}[character])
        elif character == "{":
            depth += 1
            parts.append("(?:")
        elif character == "}" and depth:
            depth -= 1
            parts.append(")")
        elif character == "," and depth:
            parts.append("|")
        elif character == "[":
            inside = "".join(iter(lambda: next(characters, "]"), "]"))
            parts.append(f"[{'^' + inside[1:] if inside[:1] in ('!', '^') else inside}]")
        else:
            parts.append(re.escape(character))
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise InputError(f"{glob[1:]!r} is no path glob: {error}", option="path_glob", found=glob[1:]) from error
