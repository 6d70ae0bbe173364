"""Shares of a read without Spark: for any columns in any order, and a further filter, they give what skep reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import golden_archives
import pyarrow as pa
import pytest

from skep_format.errors import SkepError
from skep_table.query import ReadRequest, plan, read
from skep_table.query.plan import matching, predicate_of
from skep_table.table import HudiTable
from skep_writer.reading.shares import rows_of_share, task_shares
from skep_writer.schemas import spark_arrow

SAMPLE = {
    "0.15.0/mor_event_time",
    "0.15.0/mor_partial_update",
    "0.15.0/mor_schema_evolution",
    "1.0.2/mor_log_rollback",
    "1.1.1/mor_delete",
    "1.1.1/cow_virtual_keys",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`case`: all golden tables, those beside the sample with --all. The source of a bootstrapped one is missing."""
    if "case" not in metafunc.fixturenames:
        return
    found = []
    for case in golden_archives.cases(golden_archives.unpack(Path(metafunc.config.cache.mkdir("golden")))):
        name = f"{case.version}/{case.name}"
        if not (case.folder / "source").exists():
            found.append(pytest.param(case, marks=[] if name in SAMPLE else [pytest.mark.slow], id=name))
    metafunc.parametrize("case", found)


def spelled(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))


def test_columns_and_a_further_filter(case: golden_archives.Case) -> None:
    table = HudiTable.open(case.table)
    whole = read(table).to_arrow()
    tasks = plan(table, ReadRequest())
    names = whole.schema.names
    first_text = next(name for name in names if pa.types.is_string(whole.schema.field(name).type))
    values = [value for value in whole[first_text].unique().to_pylist() if value is not None]
    where = f"{first_text} = '{values[0]}'" if values else None
    for columns in ((names[0],), (names[-1],), tuple(reversed(names)), tuple(names[5:8])):
        target = spark_arrow(whole.select(list(columns)).schema)
        for text in (None, where):
            predicate = predicate_of(text, whole.schema)
            left = tasks if predicate is None else matching(tasks, predicate)
            shares = task_shares(left, 2)
            found = [batch for share in shares for batch in rows_of_share(share, target, predicate)]
            expected = read(table, ReadRequest(columns=columns, where=text)).to_arrow()
            assert spelled(pa.Table.from_batches(found, target)) == spelled(expected.cast(target))


def test_tasks_of_partitions_that_a_filter_excludes_are_left_out(golden: Path) -> None:
    table = HudiTable.open(golden / "0.15.0" / "mor_upsert" / "table")
    tasks = plan(table, ReadRequest())
    paths = sorted({task.slice.partition_path for task in tasks})
    field: Any = table.config.partition_fields[0]
    predicate = predicate_of(f"{field} = '{paths[0].rpartition('=')[2]}'", tasks[0].scan.arrow_schema)
    assert predicate is not None
    left = matching(tasks, predicate)
    assert 0 < len(left) < len(tasks)
    assert {task.slice.partition_path for task in left} == {paths[0]}
    assert matching([], predicate) == []
    with pytest.raises(SkepError):
        predicate_of("no_such_column = 1", tasks[0].scan.arrow_schema)
