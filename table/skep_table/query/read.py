"""Reading a table: the plan of a request, run slice by slice with a few slices read ahead; or explained, not run."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from skep_format.errors import UnsupportedError
from skep_format.runner import Runner, ThreadRunner
from skep_table.query import cdc, execute
from skep_table.query.ahead import in_order
from skep_table.query.cleaned import files_there
from skep_table.query.options import QueryType
from skep_table.query.plan import ReadTask, plan, scan_of
from skep_table.query.pruning.slices import PruningStep, Steps
from skep_table.query.request import ReadRequest
from skep_table.query.result import ReadResult
from skep_table.query.unwritten import check_readable, is_plain, may_overlay, overlaid
from skep_table.table import HudiTable, Unwritten

SNAPSHOT = ReadRequest()
_SMALL_BYTES: Final = 4 << 20
_SMALL_FILTERED_BYTES: Final = 16 << 20


def read(table: HudiTable, request: ReadRequest = SNAPSHOT, runner: Runner | None = None) -> ReadResult:
    """The answer to a request. Arguments are checked now; files are opened when rows are asked for.

    Raises InputError (PredicateError, OptionError, …) for what does not fit the table.
    """
    return ReadResult(
        read_schema(table, request),
        lambda: read_batches(table, request),
        partial(_count, table, request, runner or ThreadRunner()),
    )


def read_schema(table: HudiTable, request: ReadRequest = SNAPSHOT) -> pa.Schema:
    """The schema of the answer."""
    if request.query is QueryType.CDC:
        return cdc.answer_schema(request)
    return scan_of(table, request).arrow_schema


def read_batches(table: HudiTable, request: ReadRequest = SNAPSHOT) -> Iterator[pa.RecordBatch]:
    """The rows of the answer, in the order of partitions and file groups; none of the batches is empty."""
    left = request.limit
    if left == 0:
        return
    with files_there(table):
        batches = _batches(table, request)
        for batch in batches:
            if left is not None and batch.num_rows >= left:
                yield batch.slice(0, left)
                batches.close()
                return
            yield batch
            left = None if left is None else left - batch.num_rows


def _batches(table: HudiTable, request: ReadRequest) -> Generator[pa.RecordBatch, None, None]:
    """The rows of the answer, whatever its limit, by which only few are read ahead."""
    if table.unwritten is not None:
        return _with_unwritten(table.with_unwritten(None), table.unwritten, request)
    if request.query is QueryType.CDC:
        return in_order(cdc.plan_changes(table, request), cdc.run, 1 if request.limit is not None else None)
    tasks = plan(table, request)
    batches = in_order(tasks, execute.run, 1 if request.limit is not None or _is_small(tasks) else None)
    return batches if request.only is None else request.only.filtered(batches, read_schema(table, request))


def _with_unwritten(stored: HudiTable, found: Unwritten, request: ReadRequest) -> Generator[pa.RecordBatch, None, None]:
    """UnwrittenRowsError where the answer is not known before the changes are written."""
    check_readable(found.changes, request)
    scan = scan_of(stored, request) if is_plain(request) else None
    if scan is None or not may_overlay(found, scan.arrow_schema, scan.predicate):
        yield from read_batches(stored, request)
        return
    yield from overlaid(found, request, scan.arrow_schema, scan.predicate, partial(read_batches, stored))


def _is_small(tasks: Sequence[ReadTask]) -> bool:
    """Whether one file is read, in less time than threads take. With a limit the first slice is likely to do, too."""
    if len(tasks) != 1 or tasks[0].slice.log_files:
        return False
    most = _SMALL_BYTES if tasks[0].scan.predicate is None else _SMALL_FILTERED_BYTES
    return tasks[0].slice.size_bytes <= most


def _count(table: HudiTable, request: ReadRequest, runner: Runner) -> int:
    if request.query is QueryType.CDC or request.limit is not None or table.unwritten is not None:
        return sum(batch.num_rows for batch in read_batches(table, request))
    with files_there(table):
        return sum(runner.map(execute.count, plan(table, request)))


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a read narrows down the table: the first of `steps` is all that the query sees, the last what is read.

    Of the Parquet files left, `row_groups` are there and `row_groups_read` are read.
    """

    table: str
    query: str
    where: str | None
    steps: tuple[PruningStep, ...]
    row_groups: int
    row_groups_read: int

    def __str__(self) -> str:
        head = f"{self.table}: {self.query}" + (f" where {self.where}" if self.where is not None else "")
        lines = [head, f"{'file slices':>12} {'partitions':>12}"]
        for step in self.steps:
            note = f" (of {step.logs_only} the log files only)" if step.logs_only else ""
            lines.append(f"{step.slices:>12} {step.partitions:>12}  {step.by}{note}")
        return "\n".join([*lines, f"row groups: {self.row_groups_read} of {self.row_groups} are read, by footers"])


def explain(table: HudiTable, request: ReadRequest, runner: Runner | None = None) -> Explanation:
    """Plans the read, with each step counted. Lists the whole table, and opens the footers of the files left.

    UnsupportedError for CDC queries, which leave out nothing by a filter.
    """
    if request.query is QueryType.CDC:
        raise table.error(UnsupportedError, "a cdc query reads all changes of its range; nothing to explain")
    steps = Steps()
    tasks = plan(table, request, steps)
    found = (runner or ThreadRunner()).map(execute.row_groups, tasks)
    return Explanation(
        table.config.name,
        request.query.value,
        None if request.where is None else str(request.where),
        tuple(steps.found),
        sum(every for _, every in found),
        sum(left for left, _ in found),
    )
