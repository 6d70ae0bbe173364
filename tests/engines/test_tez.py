"""Hive's jobs on Tez, which run inside of HiveServer2: each kind of view by the input format that reads it there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_asking import Engine, EngineRefused
from engine_matrix import SNAPSHOT, known
from engine_starting import engine_param
from engine_tables import RECIPES, Made
from engine_values import difference, rows_answered, rows_of

pytestmark = pytest.mark.parametrize("engine", [engine_param("hive-2.3.10")], indirect=True)
Tables = Callable[[str, str], Made]
ON_TEZ = "set hive.execution.engine=tez"
COMBINED = "set hive.tez.input.format=org.apache.hudi.hadoop.hive.HoodieCombineHiveInputFormat"
APART = "set hive.tez.input.format=org.apache.hadoop.hive.ql.io.HiveInputFormat"
KINDS = ("cow", "mor")
CASES = [
    pytest.param(name, kind, marks=() if name == "life" else pytest.mark.slow) for name in RECIPES for kind in KINDS
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_every_row_and_value_of_a_job(engine: Engine, tables: Tables, name: str, kind: str) -> None:
    """A sort makes a job of it: without, HiveServer2 reads the files itself."""
    made = tables(name, kind)
    for view in made.views:
        limit = known(engine.name, name, view.kind)
        settings = (ON_TEZ, APART if view.kind == SNAPSHOT else COMBINED)
        select = f"select * from {engine.quote(view.entry)} order by id"
        if limit is not None and limit.pattern is not None:
            with pytest.raises(EngineRefused):
                engine.ask(select, *settings)
            continue
        expected = made.table.read(query=view.query).to_arrow()
        rows = limit.rows(rows_of(expected)) if limit and limit.rows else rows_of(expected)
        answer = engine.ask(select, *settings)
        wrong = difference(rows_answered(answer.names, answer.rows, expected.schema), rows)
        assert not wrong, f"{view.entry}: {wrong}"


@pytest.mark.parametrize(
    ("kind", "input_format", "error"),
    [
        pytest.param("mor", COMBINED, "HoodieCombineRealtimeFileSplit cannot be cast", id="snapshots, combined"),
        # A fault of Hive 2 (HIVE-22438): where no column is read, their list begins with an empty number.
        pytest.param("cow", APART, "NumberFormatException", id="base files, no column, apart"),
    ],
)
def test_the_other_input_format_is_an_error(
    engine: Engine, tables: Tables, kind: str, input_format: str, error: str
) -> None:
    """Never other rows."""
    entry = engine.quote(tables("life", kind).views[-1].entry)
    with pytest.raises(EngineRefused, match=error):
        engine.ask(f"select count(*) from {entry}", ON_TEZ, input_format)
