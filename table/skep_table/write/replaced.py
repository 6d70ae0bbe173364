"""Which file groups a commit replaces: all live ones of some partitions, or of the whole table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from skep_table.instant_time import InstantTime
from skep_table.names import FileGroupId
from skep_table.runner import Runner
from skep_table.view import FileView

_ANY = re.compile(r"\*|%2A")


def live_groups(view: FileView, partitions: Iterable[str], runner: Runner) -> dict[str, tuple[str, ...]]:
    """Partition path → file ids of its live groups, for the partitions that have any."""
    listed = list(partitions)
    groups = runner.map(lambda path: tuple(group.file_id for group in view.file_groups(path)), listed)
    return {path: ids for path, ids in zip(listed, groups, strict=True) if ids}


def clusterings_met(replaced: Mapping[str, tuple[str, ...]], view: FileView) -> dict[FileGroupId, InstantTime]:
    """The groups among them that a pending clustering is to rewrite, with its instant."""
    return {
        group: instant
        for group, instant in view.pending_clustering.items()
        if group.file_id in replaced.get(group.partition_path, ())
    }


def matching_partitions(patterns: Iterable[str], known: Iterable[str]) -> list[str]:
    """The known partition paths that one of `patterns` names; `*` stands for any text, also across folders."""
    wanted = [
        re.compile("".join(".*" if _ANY.fullmatch(part) else re.escape(part) for part in _split(pattern.strip("/"))))
        for pattern in patterns
    ]
    return [path for path in known if any(pattern.fullmatch(path) for pattern in wanted)]


def _split(pattern: str) -> list[str]:
    return [part for part in re.split(r"(\*|%2A)", pattern) if part]
