"""What the partitions of a new metadata table hold, worked out from the table's files.

Files are read once, a few at a time, for all partitions that record something of files; merged slices once for the
record index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from skep_table.metadata_table.partitions import SINGLE
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_write.facts.files import FileFacts, facts_of_files
from skep_table.metadata_write.kinds import KEPT
from skep_table.metadata_write.making.spreading import (
    Build,
    Groups,
    NewPartitions,
    PartitionContents,
    Sizes,
    spread_updates,
    updates_by_file,
)
from skep_table.table import HudiTable


@contextmanager
def contents_of(table: HudiTable, files: Sizes, wanted: NewPartitions) -> Iterator[list[PartitionContents]]:
    """What the wanted partitions hold, in the order in which Hudi makes them, from the committed `files` of a snapshot.

    Temporary files last as long as the context. MetadataTableError for a key that lies in two file groups, where the
    record index has one place for it.
    """
    with ExitStack() as stack:
        build = Build(table, files, wanted, stack)
        found = _of_facts(build)
        for each in KEPT:
            found |= each.contents(build)
        named = [*(each.partition for each in wanted.secondary), *(each.partition for each in wanted.expressions)]
        yield [PartitionContents(name, found[name]) for name in (*SINGLE, *named) if name in found]


def _of_facts(build: Build) -> dict[str, Groups]:
    """The contents of all partitions that record something of files."""
    table, wanted = build.table, build.wanted.partitions
    kept = [each for each in KEPT if each.kind.name in wanted and (each.of_files or each.of_partitions)]
    if not kept:
        return {}
    wholes = [each.of_partitions(build) for each in kept if each.of_partitions is not None]

    def updates(some: Sequence[FileFacts]) -> Iterator[PartitionUpdate]:
        facts = {(each.partition_path, each.name): each for each in some}
        return (each.of_files(table, facts, build.last_time) for each in kept if each.of_files is not None)

    blooms, runner = any(each.has_filters for each in kept), table.context.runner
    facts = facts_of_files(table, build.statuses(), build.wanted.columns, blooms=blooms, runner=runner)
    puts = updates_by_file(build, "metadata_table.files", facts, updates, wholes)
    return spread_updates(build, [each.kind.name for each in kept], puts)
