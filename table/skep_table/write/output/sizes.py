"""How large the files of a write become, from the bytes of a record in recent commits or in the rows themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from skep_format.basefile import BaseFileOptions, bytes_of
from skep_format.timeline.metadata import BaseFilesWritten
from skep_table.table import HudiTable
from skep_table.write.context import WriteContext
from skep_table.write.output.files import MetaColumns
from skep_table.write.planning.operation import Replaces
from skep_table.write.planning.plan import WritePlan
from skep_table.write.planning.profile import LogSizing, PartitionProfile, Sizing
from skep_table.write.rows import KeyedRows

# Commits whose record size is read, before the option's is used.
_COMMITS_READ: Final = 16
# Merge-on-read: a small base file is rewritten for inserts up to so many times their size, unless the options set the
# number of such files.
_MOST_REWRITTEN: Final = 4
# Bytes that a commit must have written for its record size to be compared with the sizes of base files.
_LEAST_MEASURED: Final = 1 << 20
# Rows that are encoded to measure a record: enough for dictionaries to have the effect that they have in a file.
_SAMPLED_ROWS: Final = 50_000


def sizing_of(
    table: HudiTable, plan: WritePlan, profiles: Mapping[str, PartitionProfile], context: WriteContext, rows: KeyedRows
) -> Sizing:
    """Sizes for new rows. Some of the rows are encoded where no commit shows their size."""
    given = plan.settings
    inserts = max((profile.inserts for profile in profiles.values()), default=0)
    size, least = given.sizing.record_bytes, given.sizing.small_file_bytes * given.measured_share
    if inserts:
        measured = record_bytes(_newest_first(table), threshold_bytes=least, files=context.files)
        if measured is None and not given.record_bytes_given and inserts * size > context.max_file_bytes // 2:
            measured = sampled_bytes(context, rows.sample(_SAMPLED_ROWS))
        size = measured or size
    logs = _log_sizing(table, plan, context, size if inserts else None) if table.config.is_mor else None
    return replace(
        given.sizing, max_file_bytes=context.max_file_bytes, record_bytes=size, logs=logs, files=context.files
    )


def _newest_first(table: HudiTable) -> Iterator[BaseFilesWritten]:
    """What recent commits wrote: the last one by itself, as it is often enough, and the others together."""
    commits = table.timeline.data().completed().instants[: -_COMMITS_READ - 1 : -1]
    yield from map(table.commit_base_files, commits[:1])
    yield from table.context.threads.map(table.commit_base_files, commits[1:])


def _log_sizing(table: HudiTable, plan: WritePlan, context: WriteContext, record_size: int | None) -> LogSizing:
    """`record_size`: the bytes of an inserted row; None when there are no inserts, and no commit need be read."""
    # Groups that replace others begin with base files: once a resize is archived, Hudi knows it by those of its groups.
    keeps_in_logs = plan.index.finds_log_keys and plan.traits.replaces is Replaces.NOTHING
    most_rewritten = None
    if record_size is not None and not plan.settings.small_groups_given and not keeps_in_logs:
        size = record_bytes(_newest_first(table), threshold_bytes=_LEAST_MEASURED, files=context.files)
        most_rewritten = _MOST_REWRITTEN * (size or record_size)
    return replace(plan.settings.log_sizing, takes_inserts=keeps_in_logs, most_rewritten=most_rewritten)


def record_bytes(commits: Iterable[BaseFilesWritten], *, threshold_bytes: float, files: BaseFileOptions) -> int | None:
    """Average bytes of a record, from the newest commit that wrote more than `threshold_bytes`; None when none did.

    Without the bloom filters over the keys: they have the same size in any file, which is most of a small one.
    """
    for written in commits:
        rows = sum(written.rows)
        if written.size_bytes > threshold_bytes and rows > 0:
            filters = sum(files.filter_bytes(count) * times for count, times in Counter(written.rows).items())
            return max(1, -(-(written.size_bytes - filters) // rows))
    return None


def sampled_bytes(context: WriteContext, rows: pa.Table) -> int | None:
    """Bytes of a record in a base file, from a sample of keyed rows; None for an empty sample."""
    if not rows.num_rows:
        return None
    whole = MetaColumns(context, 0).added(rows, "")
    return max(1, -(-bytes_of(context.schema.with_meta(), whole, context.files) // rows.num_rows))
