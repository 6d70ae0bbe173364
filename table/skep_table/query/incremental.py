"""Incremental queries: the commits of a range, the files they wrote, and the latest version of each row in the range.

The range excludes its begin and includes its end; `ReadRules.time_in_range` defines the time of a commit. It may begin
in the archived part of the timeline. Only files that commits of the range wrote are read, so the result may contain a
row that loses against an older slice; replaced file groups are left out. A range from an archived begin to the present
is read from the whole table, which has the latest version of each row.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from skep_format.errors import ChangesCleanedError, InputError
from skep_format.instant_time import AFTER_ALL, BEFORE_ALL, BEGINNING, InstantTime
from skep_format.runner import ThreadRunner
from skep_format.storage import FileStatus
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.query.options import FALL_BACK_TO_FULL_SCAN
from skep_table.query.request import ReadRequest, instant_text
from skep_table.slices.context import CommitTimes
from skep_table.table import HudiTable
from skep_table.view import FileSlice, FileView, FolderFilter
from skep_table.view.instant_states import load_instant_states

_WAY_OUT: Final = f"{FALL_BACK_TO_FULL_SCAN.key}=true answers an incremental query from the table as it is"


def instants_between(table: HudiTable, request: ReadRequest) -> tuple[Instant, ...]:
    """The completed writes in the request's range, by requested time."""
    since, until = _range(table, request)
    time_of = table.format.reads.time_in_range
    instants = list(table.timeline.data().completed())
    earliest = min(map(time_of, instants), default=AFTER_ALL)
    # Archived are those that were requested first. They may have completed after some that are active.
    if table.format.reads.ranges_by_completion_time or since.is_before(earliest):
        instants += (i for i in table.timeline.archived(since) if i.is_completed and i.action in DATA_ACTIONS)
    end = AFTER_ALL if until is None else until
    chosen = (each for each in instants if time_of(each).is_after(since) and time_of(each).is_at_or_before(end))
    return tuple(sorted(chosen, key=lambda instant: instant.requested_time))


def times_of(table: HudiTable) -> list[InstantTime]:
    """The times of completed commits: requested ones in version 6, completion times from version 8 on.

    Requested times end before the first write that is pending: once it completes, no checkpoint must be past it.
    """
    completed = table.timeline.data().completed()
    if table.format.reads.ranges_by_completion_time:
        return sorted(InstantTime(each.completion_time or each.requested_time) for each in completed)
    first = pending_write(table) or AFTER_ALL
    return [each.requested_time for each in completed if each.requested_time.is_before(first)]


def pending_write(table: HudiTable) -> InstantTime | None:
    """The first write that is pending and will bring rows behind its requested time; None where ranges are of other
    times."""
    if table.format.reads.ranges_by_completion_time:
        return None
    pending = table.timeline.data().pending()
    times = {each.requested_time for each in pending}
    if any(each.action is Action.REPLACE_COMMIT for each in pending):
        times -= set(table.view().states.pending_clusterings.values())  # these bring no rows
    return min(times, default=None)


def bounded(table: HudiTable, request: ReadRequest) -> ReadRequest:
    """The request with the end of its range in place of a number of commits."""
    if request.max_commits is None:
        return request
    whole = replace(request, max_commits=None)
    times = sorted(map(table.format.reads.time_in_range, instants_between(table, whole)))[: request.max_commits]
    return replace(whole, until=times[-1]) if times else whole


def commits_of_rows(table: HudiTable, request: ReadRequest, instants: Sequence[Instant]) -> CommitTimes:
    """The commits whose rows are in the result, among those in the files of `instants`.

    Where ranges are of requested times, all commits before the start of the active timeline are included, also those
    that the archive lacks.
    """
    times = (instant.requested_time for instant in instants)
    if table.format.reads.ranges_by_completion_time:
        return CommitTimes.of(times)
    return CommitTimes.of(times, *_archived_range(table, request))


def _archived_range(table: HudiTable, request: ReadRequest) -> tuple[InstantTime, InstantTime]:
    """The part of the range before the start of the active timeline, exclusive at both ends."""
    since, until = _range(table, request)
    start = table.timeline.first_time or BEFORE_ALL
    return since, start if until is None else min(start, until.just_after())


def check_known(table: HudiTable, instants: Sequence[Instant], request: ReadRequest) -> None:
    """ChangesCleanedError for commits of the range that timeline and archive lack, where the table shows any."""
    after, before = _archived_range(table, request)
    if after.is_at_or_after(before):
        return
    known = {instant.requested_time for instant in instants}
    if table.format.reads.ranges_by_completion_time:  # others may have completed after the range
        known.update(each.requested_time for each in (*table.timeline, *table.timeline.archived(after)))
    unknown = _unknown_files(table, request, known, after, before)
    if unknown:
        raise ChangesCleanedError(
            f"the archive has no commit that wrote rows of {unknown[0]}, within the range of the query; ask for a later"
            " range",
            hint=_WAY_OUT if not table.format.reads.ranges_by_completion_time else None,
            path=unknown[0],
            found=len(unknown),
        )


def _unknown_files(
    table: HudiTable, request: ReadRequest, known: Collection[InstantTime], after: InstantTime, before: InstantTime
) -> list[str]:
    """The files of unknown instants between two times, and those that active commits wrote in place of such files.

    Archived commits are not asked for what they replaced: an archive that lacks one of its files is an error by itself.
    """
    view = table.view(metadata=request.metadata)
    slices = (slice_ for path in view.partitions() for slice_ in view.all_slices(path))
    files = (file for slice_ in slices for file in (slice_.base_file, *slice_.log_files) if file is not None)
    times = [(file.path, file.name.instant_time) for file in files]
    for instant in table.timeline.data().completed():
        stats = (stat for stat in table.commit_metadata(instant).stats if not stat.is_log)
        times += ((stat.path, InstantTime(stat.prev_commit)) for stat in stats if stat.prev_commit.isdecimal())
    return [path for path, time in times if time.is_between(after, before) and time not in known]


def _range(table: HudiTable, request: ReadRequest) -> tuple[InstantTime, InstantTime | None]:
    """Begin (exclusive) and end (inclusive) of the range. InputError when the end precedes the begin."""
    zone = table.config.timezone.value
    since = instant_text(request.since, zone) if request.since is not None else BEGINNING
    until = instant_text(request.until, zone) if request.until is not None else None
    if until is not None and until.is_before(since):
        raise InputError(
            f"until ({until}) lies before since ({since})", option="until", found=until, expected=f"≥ {since}"
        )
    return since, until


class WrittenFiles:
    """The files that some commits wrote, as a Listing for a FileView."""

    def __init__(self, commits: Iterable[CommitMetadata]) -> None:
        self._files: dict[str, list[FileStatus]] = defaultdict(list)
        for commit in commits:
            for partition, stats in commit.partition_to_write_stats.items():
                self._files[partition] += (FileStatus(stat.path, stat.file_size_in_bytes, 0) for stat in stats)

    def partitions(self, within: FolderFilter | None = None) -> list[str]:  # noqa: ARG002
        """Sorted paths of the partitions written to."""
        return sorted(self._files)

    def files(self, partition_path: str) -> list[FileStatus]:
        """The written files of a partition, without modification times."""
        return self._files.get(partition_path, [])

    def prefetch(self, partition_paths: Collection[str]) -> None:
        """All are known."""


def view_of_changes(table: HudiTable, instants: Sequence[Instant], request: ReadRequest) -> FileView:
    """The file groups that `instants` wrote to, made of only their files, as of the last of them.

    Where some of these files were deleted (archived instants, cleaned files) and the request or the table's release
    allows it, the view is that of the whole table now: rows that were changed since are missing from the result.
    ChangesCleanedError for commits that the timeline and the archive lack.
    """
    rules = table.format.reads
    if rules.ranges_by_completion_time:  # rows of unknown commits would be missing from a scan of the table, too
        check_known(table, instants, request)
    fall_back = request.full_scan if request.full_scan is not None else rules.scans_fully_when_cleaned
    if (fall_back or not rules.ranges_by_completion_time) and _start_is_archived(table, instants, request):
        ends_now = request.until is None and not rules.ranges_by_completion_time  # no row was changed after the range
        if fall_back or (ends_now and _has_archived(table, instants, request)):
            return table.view(metadata=request.metadata)
        check_known(table, instants, request)
    listing = WrittenFiles(map(table.commit_metadata, instants))
    if fall_back and not _all_there(table, listing, request):
        return table.view(metadata=request.metadata)
    last = instants[-1].requested_time if instants else BEFORE_ALL
    return FileView(listing, lambda: load_instant_states(table, last, ThreadRunner()))


def _has_archived(table: HudiTable, instants: Sequence[Instant], request: ReadRequest) -> bool:
    """Whether commits of the range are archived, in the archive or missing from it."""
    if any(table.timeline.is_archived(instant.requested_time) for instant in instants):
        return True
    return bool(_unknown_files(table, request, (), *_archived_range(table, request)))


def _start_is_archived(table: HudiTable, instants: Sequence[Instant], request: ReadRequest) -> bool:
    if table.format.reads.ranges_by_completion_time:
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
    """ChangesCleanedError when a file that an incremental query needs was deleted."""
    there = table.view(metadata=request.metadata).listing
    path, names = None, set[str]()
    for found in slices:  # partition by partition
        if found.partition_path != path:
            path, names = found.partition_path, {file.name for file in there.files(found.partition_path)}
        for file in (*found.log_files, *([found.base_file] if found.base_file else ())):
            if file.path.rpartition("/")[2] not in names:
                raise ChangesCleanedError(
                    f"the cleaner has removed {file.path}, which the query needs; ask for a later range",
                    hint=_WAY_OUT,
                    path=file.path,
                )


def path_matches(slice: FileSlice, storage_root: str, glob: str) -> bool:
    """Whether `glob` matches the end of the path of a slice's base file, or of its newest log file without one."""
    path = slice.base_file.path if slice.base_file else slice.log_files[-1].path
    return _hadoop_glob("*" + glob).fullmatch(f"{storage_root}/{path}") is not None


def _hadoop_glob(glob: str) -> re.Pattern[str]:
    """Hadoop's globs: `*` and `?` match slashes too, `{a,b}` are alternatives, `[…]` classes, a backslash quotes."""
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
        raise InputError(f"{glob[1:]!r} is not a path glob: {error}", option="path_glob", found=glob[1:]) from error
