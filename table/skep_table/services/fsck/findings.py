"""What a check of a table finds, as values. docs/runbook.md lists each problem with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from skep_format.errors import EncryptedFileError, SkepError
from skep_format.instant_time import InstantTime


class Problem(str, Enum):
    """What is wrong with a file, or with a part of the table that lies in one."""

    ORPHAN = "orphan"  # of an instant that the timeline does not know
    LEFTOVER = "leftover"  # of a write that is pending; the next write rolls it back, unless it is still going on
    DOUBLE = "double"  # a second file of one group and instant, of which a commit names one
    MISSING = "missing"  # named by a commit, and missing
    SIZE = "size"  # another length than in its commit metadata
    ROWS = "rows"  # another number of rows than in its commit metadata
    DAMAGED = "damaged"  # can't be read
    TORN = "torn"  # bytes of a log file that are no block, behind all that a commit wrote
    KEYS = "keys"  # the footer's filter or range of keys lacks a key of the file
    METAFILE = "metafile"  # a partition that commits wrote to has no metafile
    SETTINGS = "settings"  # hoodie.properties is missing or damaged
    BACKUP = "backup"  # an update of hoodie.properties was interrupted
    VERSION = "version"  # a change of the table's version was interrupted
    COMMIT = "commit"  # the metadata of a completed write can't be read
    PLAN = "plan"  # the plan or the metadata of another action, or of a pending write, can't be read
    ARCHIVE = "archive"  # a file of the archived timeline is missing or can't be read
    METADATA = "metadata"  # the metadata table is damaged or differs


@dataclass(frozen=True, slots=True)
class FileFinding:
    """One file that does not agree with the timeline, or can't be read; `detail` explains it for people.

    `instant` is the one that wrote it, None where that is not known.
    """

    problem: Problem
    path: str
    instant: InstantTime | None
    detail: str


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of a finding. `done`: nothing of it is left to do."""

    finding: FileFinding
    done: bool
    detail: str


UNREADABLE: Final = (SkepError, FileNotFoundError)
"""What reading a damaged or lost file raises."""


def reason(error: BaseException) -> str:
    """The error of an unreadable file in one line."""
    if isinstance(error, FileNotFoundError):
        return "it is missing"
    return error.message if isinstance(error, SkepError) else f"{type(error).__name__}: {error}"


@contextmanager
def noted(add: Callable[[FileFinding], object], problem: Problem, path: str) -> Iterator[None]:
    """What can't be read in the block becomes a finding, so that the next check runs all the same.

    Whatever the error, but for missing keys: damaged bytes that still parse may end a check anywhere.
    """
    try:
        yield
    except EncryptedFileError:
        raise
    except Exception as error:
        at = str(error.fields.get("path") or path) if isinstance(error, SkepError) else path
        add(FileFinding(problem, at, None, reason(error)))
