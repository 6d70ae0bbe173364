"""What a read would open, and by what each part of the table is left out."""

from __future__ import annotations

from dataclasses import dataclass

from skep_format.errors import UnsupportedError
from skep_format.runner import Runner, ThreadRunner
from skep_table.query import execute
from skep_table.query.options import QueryType
from skep_table.query.plan import plan
from skep_table.query.pruning.steps import PruningStep, Steps
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable


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
        raise UnsupportedError(
            f"table {table.config.name}: a cdc query reads all changes of its range; nothing to explain"
        )
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
