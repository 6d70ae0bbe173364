"""Which file groups a commit replaces: all live ones of some partitions, or of the whole table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from skep_format.errors import InputError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId
from skep_format.runner import Runner
from skep_table.keys import KeyGenerator
from skep_table.keys.buckets import GroupNames
from skep_table.table import HudiTable
from skep_table.view import FileView
from skep_table.write.planning.profile import Bucket


@dataclass(frozen=True, slots=True)
class NamedPartitions:
    """The partitions in which some partition columns have given values."""

    values: Mapping[str, object]
    pattern: re.Pattern[str]

    @classmethod
    def of(
        cls, generator: KeyGenerator, columns: pa.Schema, values: Mapping[str, object], table: str
    ) -> NamedPartitions:
        """InputError for a column that the table is not partitioned by, or a value that is not of its type."""
        unknown = [name for name in values if name not in generator.partition_fields]
        if unknown:
            raise InputError.of_table(
                table,
                f"{unknown[0]} is no partition column",
                column=unknown[0],
                found=unknown[0],
                expected=", ".join(generator.partition_fields) or "a table with partitions",
            )
        parts = []
        for name in generator.partition_fields:
            if name not in values:
                parts.append(".+")
                continue
            kind = columns.field(name).type
            try:
                row = pa.table({name: pa.array([values[name]]).cast(kind)})
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise InputError.of_table(
                    table,
                    f"{values[name]!r} is no value of partition column {name}, which is {kind}",
                    column=name,
                    found=values[name],
                    expected=str(kind),
                ) from error
            parts.append(re.escape(replace(generator, partition_fields=(name,)).partition_paths(row)[0].as_py()))
        return cls(values, re.compile("/".join(parts)))

    def of_paths(self, paths: Iterable[str]) -> list[str]:
        """Those of these partition paths that are meant."""
        return [path for path in paths if self.pattern.fullmatch(path)]


def check_within(paths: Iterable[str], named: NamedPartitions, table: str) -> None:
    """InputError for a partition that rows are in, and that is not one of the named ones."""
    for path in paths:
        if not named.pattern.fullmatch(path):
            values = ", ".join(f"{name}={value}" for name, value in named.values.items())
            problem = f"rows are in partition {path}, which {values} is not, and would not be replaced"
            raise InputError.of_table(table, problem, partition=path, found=path, expected=values)


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
        for group, instant in view.states.pending_clusterings.items()
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


def refuse_reused_names(table: HudiTable, buckets: Iterable[Bucket], names: GroupNames) -> None:
    """UnsupportedError where a new file group would have the name of one that was replaced: no reader would see it."""
    if not names.fixed:
        return
    replaced = table.view().states.replaced
    for bucket in buckets:
        by = replaced.get(FileGroupId(bucket.partition_path, bucket.file_id))
        if bucket.base is None and by is not None:
            raise table.error(
                UnsupportedError,
                f"file group {bucket.file_id} of partition {bucket.partition_path or 'of the table'} was replaced by"
                f" {by}, and non-blocking writers have no other name for its bucket",
                hint="write to it once with hoodie.write.concurrency.mode=optimistic_concurrency_control",
                path=bucket.partition_path,
                instant=by,
            )
