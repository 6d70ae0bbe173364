"""What engines answer for tables that skep wrote and synced: `select *` value by value, and what people ask."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from engine_asking import Answer, Engine, EngineRefused
from engine_matrix import known, section, with_section
from engine_starting import ENGINES, FLINK, engine_param
from engine_tables import RECIPES, Made
from engine_values import Row, difference, rows_answered, rows_of

import skep
from skep_catalog.embedded import EmbeddedMetastore

Tables = Callable[[str, str], Made]
KINDS = ("cow", "mor")
COLUMNS = (("id", pa.string()), ("a_timestamp", pa.int64()))
PAGE = Path(__file__).parents[2] / "docs" / "engines.md"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RECIPES)
def test_every_row_and_value(engine: Engine, tables: Tables, name: str, kind: str) -> None:
    made = tables(name, kind)
    for view in made.views:
        limit = known(engine.name, name, view.kind)
        select = f"select * from {engine.quote(view.entry)}"
        if limit is not None and limit.pattern is not None:
            with pytest.raises(EngineRefused, match=limit.pattern):
                engine.ask(select)
        else:
            query = limit.query if limit and limit.query else view.query
            expected = made.table.read(query=query).to_arrow()
            rows = rows_of(expected)
            changed = limit.rows(rows) if limit and limit.rows else rows
            answer = engine.ask(select, *(limit.settings if limit else ()))
            found = compared(engine, answer, expected.schema, changed)
            assert not found, f"{engine.name}: {view.entry}: {found}"


def compared(engine: Engine, answer: Answer, schema: pa.Schema, rows: list[Row]) -> str:
    """How the engine's rows differ; empty when they don't."""
    assert sorted(name.lower() for name in answer.names) == sorted(name.lower() for name in schema.names)
    return difference(rows_answered(answer.names, answer.rows, schema), rows)


def test_conditions_on_copied_row_groups_with_indexes_of_pages(engine: Engine, tables: Tables) -> None:
    (view,) = tables("with_indexes_of_pages", "cow").views
    for where, wanted in (("id = 'id-555'", 1), ("amount between 3 and 5", 9), ("ts = 2", 5)):
        answer = engine.ask(f"select * from {engine.quote(view.entry)} where {where}")
        assert len(answer.rows) == wanted, where


@pytest.mark.parametrize("engine", [engine_param("hive-2.3.10")], indirect=True)
def test_hive_reads_the_orc_files_of_a_copy_on_write_table(engine: Engine, tables: Tables) -> None:
    """By Hive's own input format, which Hudi registers, too: it shows all versions of a file, of which there is one."""
    made = tables("in_orc", "cow")
    (view,) = made.views
    expected = made.table.read().to_arrow()
    answer = engine.ask(f"select * from {engine.quote(view.entry)}")
    assert not (found := compared(engine, answer, expected.schema, rows_of(expected))), found


@pytest.mark.parametrize("engine", [engine_param("presto-0.287")], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_prestos_own_catalog_for_hudi_reads_the_same(engine: Engine, tables: Tables, kind: str) -> None:
    made = tables("life", kind)
    for view in made.views:
        expected = made.table.read(query=view.query).to_arrow()
        answer = engine.ask(f"select * from {engine.quote(f'hudi.{view.entry}')}")
        assert not (found := compared(engine, answer, expected.schema, rows_of(expected))), f"{view.entry}: {found}"


@pytest.mark.slow
@pytest.mark.parametrize("engine", [engine_param("presto-0.287")], indirect=True)
def test_presto_merges_timestamps_that_are_numbers_in_the_entry(
    engine: Engine, metastore_server: EmbeddedMetastore, tmp_path: Path
) -> None:
    """Microseconds, with logs and without; of read-optimized views, which Presto reads by itself, milliseconds."""
    numbers = {"hoodie.datasource.hive_sync.support_timestamp": "false"}
    with skep.connect(metastore_server.uri, warehouse=str(tmp_path), database="of_numbers", options=numbers) as lake:
        made = RECIPES["timestamps"].make(lake, "mor")
        rows = made.table.read().to_arrow()
        micros = dict(zip(*(rows.column(name).cast(kind).to_pylist() for name, kind in COLUMNS), strict=True))
        read_optimized, snapshot = (f"select id, a_timestamp from {engine.quote(view.entry)}" for view in made.views)
        assert dict(engine.ask(snapshot).rows) == micros
        made.table.compact()
        assert dict(engine.ask(snapshot).rows) == micros
        millis = {key: value // 1000 for key, value in micros.items() if value is not None}
        assert {key: value for key, value in engine.ask(read_optimized).rows if value is not None} == millis


@pytest.mark.engine(*ENGINES)
def test_the_views_differ_where_log_files_are_not_merged(zoo: Tables) -> None:
    """The basis of the other tests: an engine that answers one view with the other is detected."""
    for name in RECIPES:
        made = zoo(name, "mor")
        ours = [rows_of(made.table.read(query=view.query).to_arrow()) for view in made.views]
        assert difference(*ours), name


def test_the_page_of_the_docs_shows_what_is_known_of_engines() -> None:
    """Which `test_every_row_and_value`, here and of Flink, proves cell by cell. SKEP_WRITE_DOCS=1 writes the page."""
    page = wanted = PAGE.read_text(encoding="utf-8")
    features = {name: recipe.feature for name, recipe in RECIPES.items()}
    for name in (*ENGINES, FLINK):
        wanted = with_section(wanted, name, section(name, features))
    if os.environ.get("SKEP_WRITE_DOCS"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert page == wanted, "docs/engines.md is out of date: run this again with SKEP_WRITE_DOCS=1"
