"""Checkpoints in the extra metadata of commits: which one a round goes on from, and what its commit states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from skep_format.errors import FormatError, InputError
from skep_format.timeline.instant import Instant
from skep_format.versions import STREAMER_KEYS, StreamerKeys
from skep_stream.protocols import Position
from skep_table.table import HudiTable

IGNORE_KEY: Final = "deltastreamer.checkpoint.ignore_key"
STATE_PREFIX: Final = "skep.stream."
"""Of what skep states beside Hudi's keys: state of the source, which other streamers ignore."""
WRITER_KEY: Final = "skep.stream.id"
"""Which of several streamers into one table made a commit."""
_NO_STATE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """What the caller sets about checkpoints: a value to start from, to ignore what is there, whose they are."""

    checkpoint: str | None = None
    ignore: str | None = None
    writer: str = ""
    first: str | None = None  # where a table has no checkpoint


@dataclass(frozen=True, slots=True)
class Recorded:
    """The checkpoint of a commit."""

    instant: Instant
    checkpoint: str | None
    reset: str | None = None
    ignored: str | None = None
    state: Mapping[str, str] = field(default_factory=dict)
    every: Mapping[str, str] = field(default_factory=dict)  # of all streamers, where there are several
    writer: str | None = None  # that made the commit, where it is one of several


def newest(table: HudiTable | None, writer: str = "") -> Recorded | None:
    """That of the newest commit of the active timeline that has one; None where no commit has. Reads no archive.

    With `writer`, the newest one that it made itself, or that has its entry and is not of skep. Where its own commits
    are archived, it is one that carried its entry on, without the state, which is of the other one's source.
    """
    shared: Recorded | None = None
    for found in _history(table, writer):
        if not writer or found.writer in (None, writer):
            return found
        shared = shared or replace(found, state={})
    return shared


def parse(instant: Instant, extra: Mapping[str, str], writer: str = "") -> Recorded | None:
    """The checkpoint in the extra metadata of a commit; None where there is none.

    Commits of a table that was upgraded have the keys of its former version.
    """
    for keys in STREAMER_KEYS:
        value, reset = extra.get(keys.checkpoint) or None, extra.get(keys.reset) or None
        if value is None and reset is None:
            continue
        every = _entries(instant, keys, value)
        if writer and every and writer not in every:
            return None
        return Recorded(
            instant=instant,
            checkpoint=every.get(writer) if every else value,
            reset=reset,
            ignored=extra.get(IGNORE_KEY),
            state={key: text for key, text in extra.items() if key.startswith(STATE_PREFIX) and key != WRITER_KEY},
            every=every,
            writer=extra.get(WRITER_KEY),
        )
    return None


def _entries(instant: Instant, keys: StreamerKeys, value: str | None) -> Mapping[str, str]:
    """The checkpoints of several streamers by their ids; empty for that of one."""
    if value is None or not value.startswith("{"):
        return {}
    try:
        found = json.loads(value)
    except ValueError as error:
        raise FormatError(f"{instant.requested_time}: {keys.checkpoint} is no JSON: {value}", found=value) from error
    return {str(name): str(each) for name, each in found.items()}


def resumed(found: Recorded | None, asked: CheckpointSettings) -> Position:
    """From where a round goes on.

    A value of the caller's counts once: not again after a commit that was made with it. InputError where the newest
    checkpoint belongs to several streamers, and the caller names none.
    """
    if found is None:
        return Position(asked.checkpoint if asked.checkpoint is not None else asked.first)
    if asked.ignore is not None and asked.ignore != found.ignored:
        return Position(asked.checkpoint)
    if asked.checkpoint is not None and asked.checkpoint != found.reset:
        return Position(asked.checkpoint)
    if found.every and not asked.writer:
        raise InputError(
            f"commit {found.instant.requested_time} has checkpoints of several streamers: {', '.join(found.every)}",
            hint="hoodie.streamer.multiwriter.source.checkpoint.id names the one that goes on",
            found=tuple(found.every),
        )
    if found.checkpoint is None:
        raise InputError(
            f"commit {found.instant.requested_time} has a reset key and no checkpoint",
            hint="--checkpoint names one, --ignore-checkpoint starts from the beginning",
        )
    return Position(found.checkpoint, found.state)


def stated(
    keys: StreamerKeys,
    checkpoint: str | None,
    state: Mapping[str, str],
    asked: CheckpointSettings,
    found: Recorded | None,
    others: Mapping[str, str] = _NO_STATE,
) -> dict[str, str]:
    """What a commit states in its extra metadata; `others` are the newest entries of all streamers."""
    extra: dict[str, str] = {}
    if checkpoint is not None:
        extra[keys.checkpoint] = checkpoint
        extra.update(state)
        if asked.writer:
            every = {**(found.every if found else _NO_STATE), **others, asked.writer: checkpoint}
            extra[keys.checkpoint] = json.dumps(every, separators=(",", ":"), sort_keys=True)
            extra[WRITER_KEY] = asked.writer
    if asked.checkpoint is not None:
        extra[keys.reset] = asked.checkpoint
    if asked.ignore is not None:
        extra[IGNORE_KEY] = asked.ignore
    return extra


def entries(table: HudiTable | None) -> Mapping[str, str]:
    """The checkpoints of several streamers in the newest commit that has such; empty where none has.

    Each commit carries those of the others on: their own commits may be archived.
    """
    return next((each.every for each in _history(table) if each.every), _NO_STATE)


def _history(table: HudiTable | None, writer: str = "") -> Iterator[Recorded]:
    """All checkpoints of the active timeline, newest first."""
    if table is None:
        return
    for instant in reversed(table.timeline.data().completed().instants):
        found = parse(instant, table.commit_extra(instant), writer)
        if found is not None:
            yield found
