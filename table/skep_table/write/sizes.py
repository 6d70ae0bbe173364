"""How large the files of a write become: what a record takes, learnt from commits or from the rows themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

import pyarrow as pa

from skep_table.basefile import BaseFileOptions, parquet_bytes
from skep_table.logfile.options import COMPRESSION_RATIO
from skep_table.table import HudiTable
from skep_table.timeline.metadata import BaseFilesWritten
from skep_table.write.context import WriteContext
from skep_table.write.files import MetaColumns
from skep_table.write.options import (
    AUTO_SPLIT,
    MAX_FILE_BYTES,
    RECORD_BYTES,
    RECORD_BYTES_THRESHOLD,
    SMALL_FILE_BYTES,
    SMALL_GROUPS,
    SPLIT_ROWS,
)
from skep_table.write.plan import WritePlan
from skep_table.write.profile import LogSizing, PartitionProfile, Sizing

# Commits that are asked for the size of their records, before the option's is taken.
_COMMITS_ASKED: Final = 16
# Rows that are encoded to see what a record takes: enough for dictionaries to pay as they will in a file.
_SAMPLED_ROWS: Final = 50_000


def sizing_of(
    table: HudiTable,
    plan: WritePlan,
    profiles: Mapping[str, PartitionProfile],
    context: WriteContext,
    sample: Callable[[int], pa.Table],
) -> Sizing:
    """Sizes for new rows. `sample` gives keyed rows, at most so many: asked when no commit tells what one takes."""
    given = plan.options
    logs = LogSizing(given.value(SMALL_GROUPS), given.value(COMPRESSION_RATIO), plan.index.knows_logs)
    small, most = given.value(SMALL_FILE_BYTES), given.value(MAX_FILE_BYTES)
    inserts = max((profile.inserts for profile in profiles.values()), default=0)
    size = given.value(RECORD_BYTES)
    if inserts:
        newest_first = islice(reversed(table.timeline.data().completed().instants), _COMMITS_ASKED)
        learnt = record_bytes(
            map(table.commit_base_files, newest_first),
            threshold_bytes=small * given.value(RECORD_BYTES_THRESHOLD),
            files=context.files,
        )
        if learnt is None and not given.is_set(RECORD_BYTES) and inserts * size > most // 2:
            learnt = sampled_bytes(context, sample(_SAMPLED_ROWS))
        size = learnt or size
    return Sizing(
        small_file_bytes=small,
        max_file_bytes=most,
        record_bytes=size,
        logs=logs if table.config.is_mor else None,
        split_rows=None if given.value(AUTO_SPLIT) else given.value(SPLIT_ROWS),
        files=context.files,
    )


def record_bytes(commits: Iterable[BaseFilesWritten], *, threshold_bytes: float, files: BaseFileOptions) -> int | None:
    """Average size of a record, from the newest commit that wrote more than `threshold_bytes`.

    The filters over the keys have their size whatever a file holds, which would be most of a small one.
    """
    for written in commits:
        rows = sum(written.rows)
        if written.size_bytes > threshold_bytes and rows > 0:
            filters = sum(files.filter_bytes(count) * times for count, times in Counter(written.rows).items())
            return max(1, -(-(written.size_bytes - filters) // rows))
    return None


def sampled_bytes(context: WriteContext, rows: pa.Table) -> int | None:
    """What a record takes in a base file, from some of them."""
    if not rows.num_rows:
        return None
    whole = MetaColumns(context, 0).added(rows, "")
    return max(1, -(-len(parquet_bytes(context.schema.with_meta(), whole, context.files)) // rows.num_rows))
