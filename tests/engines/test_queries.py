"""What engines answer for tables that skep wrote and synced: `select *` value by value, and what people ask."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from engine_asking import Answer, Engine, EngineRefused
from engine_matrix import Matrix, known
from engine_starting import ENGINES
from engine_tables import RECIPES, Made
from engine_values import Row, difference, rows_answered, rows_of

Tables = Callable[[str, str], Made]
KINDS = ("cow", "mor")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RECIPES)
def test_every_row_and_value(engine: Engine, tables: Tables, matrix: Matrix, name: str, kind: str) -> None:
    made = tables(name, kind)
    for view in made.views:
        limit = known(engine.name, name, view.kind)
        select = f"select * from {engine.quote(view.entry)}"
        if limit is not None and limit.pattern is not None:
            with pytest.raises(EngineRefused, match=limit.pattern):
                engine.ask(select)
        else:
            expected = made.table.read(query=view.query).to_arrow()
            rows = rows_of(expected)
            found = compared(engine, engine.ask(select), expected.schema, limit.rows(rows) if limit else rows)
            assert not found, f"{engine.name}: {view.entry}: {found}"
        matrix.note(engine.name, made.recipe.feature, view.kind, limit.text if limit else "yes")


def compared(engine: Engine, answer: Answer, schema: pa.Schema, rows: list[Row]) -> str:
    """How the engine's rows differ; empty when they don't."""
    assert sorted(name.lower() for name in answer.names) == sorted(name.lower() for name in schema.names)
    return difference(rows_answered(answer.names, answer.rows, schema), rows)


@pytest.mark.engine(*ENGINES)
def test_the_views_differ_where_log_files_are_not_merged(zoo: Tables) -> None:
    """What the other tests stand on: an engine that answers one view with the other is seen."""
    for name in RECIPES:
        made = zoo(name, "mor")
        ours = [rows_of(made.table.read(query=view.query).to_arrow()) for view in made.views]
        assert difference(*ours), name
