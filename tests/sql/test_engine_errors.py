"""What Spark fails with is one error of skep: Spark's message and error class, at the place of the statement's text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep.lake import Lake
from skep.serve.hive.operations import failure_of
from skep_format.errors import InputError, SkepError

pytestmark = pytest.mark.metastore

# A query over table t (a temporary view v with a name of its own), and of its error: the place, what the message is
# apart from that, the error class that Spark documents, and the nearest name.
FAILURES = (
    ("select\n  id,\n  raise_error('my\ntext') from t", None, "my\ntext", None, None),
    ("select assert_true(id > 5) from t", None, "is not true!", None, None),
    ("select id,\n   cast(note as int) c from {db}.t", (2, 4), "The value 'a' of the type", "CAST_INVALID_INPUT", None),
    ("select x.id, 1 / x.zero from {db}.t as x", (1, 14), "Division by zero", "DIVIDE_BY_ZERO", None),
    ("select id from v where id = (select id from t)", (1, 29), "More than one row", "SCALAR_SUBQUERY", None),
    ("select v.id, t.id\n from v join t on date_trunc('day', t.nte) > '1'", (2, 37), "`t`.`nte`", "COLUMN", "note"),
    ("select date_trnc('day', note) from t", (1, 8), "`date_trnc` on search path", "UNRESOLVED_ROUTINE", "date_trunc"),
    ("select element_at(array(id), 7) from t", (1, 8), "The index 7 is out of bounds", "INVALID_ARRAY_INDEX", None),
)


@pytest.fixture
def filled(spark_lake: Lake) -> Lake:
    rows = pa.table({"id": [1, 2], "note": ["a", "b"], "zero": [0, 0]})
    spark_lake.create_table("t", rows, key="id").upsert(rows)
    spark_lake.sql("create temporary view v as select id, note from t")
    spark_lake.sql("set spark.sql.ansi.enabled=true")
    return spark_lake


@pytest.mark.spark
def test_what_spark_fails_with(filled: Lake, database: str) -> None:
    for query, place, message, error_class, near in FAILURES:
        with pytest.raises(InputError) as caught:
            filled.sql(query.format(db=database)).to_arrow()
        error = caught.value
        assert message in error.message, query
        assert (error.fields.get("line"), error.fields.get("column")) == (place or (None, None)), query
        assert error.message.startswith(f"line {place[0]}, column {place[1]}: " if place else "the query failed: "), (
            query
        )
        assert (error_class or "") in str(error.fields.get("error_class", "")), query
        assert error.hint == (near and f"did you mean {near}?"), query
        assert "\tat " not in str(error), query
        assert "skep_" not in str(error), query
        assert error.__suppress_context__, query
        assert failure_of(error).sql_state == "42000", query


@pytest.mark.spark
def test_a_frame_that_fails_while_it_is_written(filled: Lake, spark: Any) -> None:
    frame = spark.sql("select 3L id, 'c' note, if(id = 0, raise_error('my text'), 1L) zero from range(1)")
    table = filled.table("t")
    for write in (table.upsert, table.insert, table.bulk_insert, table.insert_overwrite_table):
        with pytest.raises(InputError, match="my text") as caught:
            write(frame)
        assert "\tat " not in str(caught.value)
    assert table.read().to_arrow()["id"].to_pylist() == [1, 2]


@pytest.mark.spark
def test_spark_answers_null_where_it_states_none(filled: Lake, spark: Any) -> None:
    """ANSI's error of an index out of bounds is lost in the optimizer of Spark 3."""
    result = filled.sql("select array(id)[7] as x from t")
    if spark.version.startswith("3."):
        assert result.to_arrow().to_pylist() == [{"x": None}, {"x": None}]
    else:
        with pytest.raises(InputError, match="The index 7 is out of bounds"):
            result.to_arrow()


@pytest.mark.spark
def test_a_statement_whose_query_fails_changes_nothing(filled: Lake) -> None:
    before = filled.table("t").hudi.timeline.instants
    for statement in (
        "insert into t select id, raise_error('no') note, zero from t",
        "update t set note = raise_error('no') where id = 1",
        "delete from t where cast(raise_error('no') as string) is null and id > 0",
        "merge into t using v on t.id = v.id when matched then update set note = raise_error('no')",
        "create table u tblproperties (primaryKey = 'id') as select id, cast(raise_error('no') as int) n from t",
    ):
        with pytest.raises(InputError, match=r"the query failed: (\[USER_RAISED_EXCEPTION\] )?no$"):
            pytest.fail(f"{statement}: {filled.sql(statement).writes}")
    assert filled.table("t").hudi.timeline.instants == before
    assert [name.rpartition(".")[2] for name in filled.tables(filled.database)] == ["t"]


@pytest.mark.spark
@pytest.mark.parametrize(
    "statement",
    [
        "update t set zero = 5,\n  note = cast(@1 / zero as string)",
        "update t set zero = 5 where note = 'a'\n and @1 / zero > 1",
        "merge into t using v on t.id = v.id\n when matched then update\n set note = cast(@1 / t.zero as string)",
        "merge into t using\n (select id, @1 / zero z from t) s on t.id = s.id when matched then update set note = z",
        "merge into t using v on t.id = v.id\n when matched and @1 / t.zero > 1 then delete",
        "insert into t\n select id, note, cast(@1 / zero as int) from t",
    ],
)
def test_the_place_of_an_error_within_a_write(filled: Lake, statement: str) -> None:
    """That of the sign behind @."""
    before, _, after = statement.partition("@")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    with pytest.raises(InputError, match="Division by zero") as caught:
        filled.sql(before + after)
    assert (caught.value.fields.get("line"), caught.value.fields.get("column")) == (line, column)


@pytest.mark.spark
def test_a_function_of_python_fails_with_its_own_error(filled: Lake) -> None:
    filled.spark.udf.register("fails", lambda value: 1 // (value - value), "int")
    with pytest.raises(SkepError, match=r"^the query failed: ZeroDivisionError: [a-z ]+zero"):
        filled.sql("select fails(id) from t").to_arrow()


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_that_runs_out_of_memory_is_started_again(tmp_path: Path) -> None:
    """Spark's thread that serves the rows died of it, and the query waited for ever."""
    code = f"""
import skep
from skep_format.errors import EngineError
def started(event):
    if event.name == "spark.start.start":
        print(event.name, event.facts["why"])
with skep.connect(warehouse={str(tmp_path / "lake")!r}, listener=started) as lake:
    try:
        lake.sql("select length(repeat('x', 2000000000) || repeat('y', 2000000000))", engine="spark").to_arrow()
    except EngineError as error:
        print(error)
    print(lake.sql("select 1 as a", engine="spark").to_arrow().to_pydict())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900)
    start, first, hint, again, last = done.stdout.splitlines()
    assert start == again == "spark.start.start the engine is named"
    assert first == "Spark's process has ended: it ran out of memory"
    assert "spark.driver.memory" in hint
    assert last == "{'a': [1]}"
    assert "skep_format.errors" not in done.stderr  # Py4J logs that Spark ended; the command line leaves that out
