"""Which files a round reads, by their times and what is remembered of those read: pure, nothing is listed here.

Hudi's checkpoint is the greatest modification time that was read, and reads what is newer. So a file that arrives with
an older or equal time is lost. Beside that checkpoint skep remembers the files read last, by a digest of name, time and
size: back to the time `horizon` what is not among them has not been read. A JVM streamer goes on from the same
checkpoint, and from its commits skep goes on by times alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from skep_format.errors import FormatError, InputError
from skep_format.storage import FileStatus

STATE_KEY: Final = "skep.stream.files"
BEFORE_ALL: Final = -(1 << 63)
"""Hudi's checkpoint where no file was there: the least time of Java."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The files that were read and are later than `horizon`, oldest first, as (digest, modification time)."""

    horizon: int
    files: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, checkpoint: int | None, text: str | None) -> Remembered:
        """From a commit; by the checkpoint alone where the commit states no files."""
        if text is None:
            return cls(BEFORE_ALL if checkpoint is None else checkpoint)
        try:
            found = json.loads(text)
            return cls(int(found["horizon"]), tuple((str(digest), int(time)) for digest, time in found["read"]))
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{STATE_KEY} of a commit can't be read: {text[:80]}", found=text[:80]) from error

    def text(self) -> str:
        """As a commit states it."""
        return json.dumps({"horizon": self.horizon, "read": [list(each) for each in self.files]}, separators=(",", ":"))

    def with_read(self, files: Iterable[FileStatus], left: Sequence[FileStatus], most: int) -> Remembered:
        """After `files` were read. The oldest are forgotten beyond `most`, but none that a file `left` may precede."""
        every = sorted(
            {*self.files, *((digest_of(file), file.modified_ms) for file in files)}, key=lambda each: each[1]
        )
        oldest_left = min((file.modified_ms for file in left), default=None)
        kept = every[-most:] if most else []
        if len(kept) == len(every):
            return Remembered(self.horizon, tuple(every))
        horizon = every[len(every) - len(kept) - 1][1]
        if oldest_left is not None and horizon >= oldest_left:
            return Remembered(self.horizon, tuple(every))
        return Remembered(horizon, tuple(each for each in kept if each[1] > horizon))


@dataclass(frozen=True, slots=True)
class ChosenFiles:
    """The files of a round, in order of their times, and what is known after it.

    `late`: some of them have a time that is not after the last checkpoint. `oversized`: the one file, which is as
    large as the limit. `blocked`: it is not read.
    """

    files: tuple[FileStatus, ...]
    checkpoint: int
    remembered: Remembered
    late: bool = False
    oversized: FileStatus | None = None
    blocked: FileStatus | None = None


@dataclass(frozen=True, slots=True)
class FileRule:
    """How files are chosen: `limit` in bytes, `remembered` files at most, an `oversized` file alone or not at all."""

    limit: int
    remembered: int = 1000
    oversized: bool = True


def digest_of(file: FileStatus) -> str:
    """Stands for a file as it is: one that is replaced is another."""
    return hashlib.sha256(f"{file.path}|{file.modified_ms}|{file.size_bytes}".encode()).hexdigest()[:16]


def checkpoint_of(text: str | None) -> int | None:
    """Hudi's checkpoint of file sources. InputError for another text."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{text!r} is no checkpoint of a file source",
            hint="it is a modification time in milliseconds since 1970; --checkpoint sets it",
            found=text,
        ) from None


def choose(listed: Iterable[FileStatus], last: int | None, remembered: Remembered, rule: FileRule) -> ChosenFiles:
    """The files to read, up to the limit; files of one time stay together, as Hudi's checkpoint can't divide them."""
    before = BEFORE_ALL if last is None else last
    eligible = _unread(listed, before, remembered, rule)
    files: list[FileStatus] = []
    size, newest = 0, before
    oversized = blocked = None
    for file in eligible:
        is_later = file.modified_ms > newest
        if size + file.size_bytes >= rule.limit and (is_later or (file.modified_ms <= before and files)):
            if files:
                break
            if not rule.oversized:
                blocked = file
                break
            oversized = file
        newest = max(newest, file.modified_ms)
        size += file.size_bytes
        files.append(file)
    left = eligible[len(files) :]
    return ChosenFiles(
        files=tuple(files),
        checkpoint=newest,
        remembered=remembered.with_read(files, left, rule.remembered),
        late=any(file.modified_ms <= before for file in files),
        oversized=oversized,
        blocked=blocked,
    )


def _unread(listed: Iterable[FileStatus], before: int, remembered: Remembered, rule: FileRule) -> list[FileStatus]:
    read = {digest for digest, _ in remembered.files} if rule.remembered else set()
    horizon = min(remembered.horizon, before) if rule.remembered else before
    found = [
        file
        for file in listed
        if file.size_bytes and not _is_hidden(file.path) and file.modified_ms > horizon and digest_of(file) not in read
    ]
    return sorted(found, key=lambda file: (file.modified_ms, file.path))


def _is_hidden(path: str) -> bool:
    """Hudi reads nothing whose name, or whose folder's, begins with a dot or underscore."""
    return any(part[0] in "._" for part in path.split("/") if part)
