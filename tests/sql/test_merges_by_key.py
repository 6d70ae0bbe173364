"""MERGE whose ON compares one column, and whose clauses take the source's columns as they are: joined without a query,
with the rows that the engine's join has."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.handles.table import Table
from skep.query import sail
from skep.query.sail import SailEngine
from skep_format.errors import SkepError
from skep_format.schema.types import RECORD_KEY
from tests.tables_at import create_at

Row = dict[str, Any]
TYPES = {"int": pa.int32(), "text": pa.string(), "day": pa.date32()}
VALUES = {
    "int": lambda at: at - 3,
    "text": lambda at: ("y", "a", "A", "é", "\U0001f600", "ab", "b ", "b", " b", "z")[at],
    "day": lambda at: dt.date(1970, 1, 1) + dt.timedelta(at),
}
ANSWERED = SailEngine.held


def schema_of(kind: str) -> pa.Schema:
    return pa.schema([("id", TYPES[kind]), ("n", pa.int64()), ("word", pa.string()), ("part", pa.string())])


def rows(kind: str, of: list[tuple[int, int | None]], word: str) -> pa.Table:
    made = [{"id": VALUES[kind](at), "n": n, "word": word + str(n), "part": f"p{at % 2}"} for at, n in of]
    return pa.Table.from_pylist(made, schema=schema_of(kind))


def make(path: Path, kind: str, stored: pa.Table, **spec: Any) -> Table:
    table = create_at(str(path), schema_of(kind), {}, key="id", partition_by="part", **spec)
    table.bulk_insert(stored)
    return table


def found(table: Table) -> list[Row]:
    rows_ = table.read(columns=[RECORD_KEY, "id", "n", "word", "part"]).to_arrow().to_pylist()
    return sorted(rows_, key=lambda each: tuple(map(repr, each.values())))


def merged(table: Table, source: pa.Table, on: str, clauses: tuple[str, ...]) -> list[Row] | str:
    """The rows afterwards, or the error."""
    merge = table.merge(source, on=on)
    for clause in clauses:
        match clause:
            case "update":
                merge = merge.when_matched_update_all()
            case "some":
                merge = merge.when_matched_update({"word": "source.word"})
            case "delete":
                merge = merge.when_matched_delete()
            case "insert":
                merge = merge.when_not_matched_insert_all()
    try:
        merge.execute()
    except SkepError as error:
        return f"{type(error).__name__}: {error.message}"
    return found(table)


NUMBERS = st.integers(0, 9)
STORED = st.lists(st.tuples(NUMBERS, st.none() | st.integers(0, 5)), unique_by=lambda each: each[0], max_size=8)
SOURCE = st.lists(st.tuples(NUMBERS, st.none() | st.integers(0, 5)), max_size=6)
CLAUSES = st.sampled_from([("update", "insert"), ("update",), ("some", "insert"), ("delete", "insert"), ("insert",)])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(sorted(TYPES)),
    type=st.sampled_from(["cow", "mor"]),
    on=st.sampled_from(["id", "n"]),
    stored=STORED,
    source=SOURCE,
    clauses=CLAUSES,
)
def test_the_rows_are_those_of_the_engines_join(
    kind: str,
    type: str,
    on: str,
    stored: list[tuple[int, int | None]],
    source: list[tuple[int, int | None]],
    clauses: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, given_ = tmp_path_factory.mktemp("merge"), rows(kind, source, "s")
    answers = []
    for name, held in (("by-key", ANSWERED), ("by-query", lambda *_: None)):
        table = make(folder / name / "t", kind, rows(kind, stored, "t"), type=type)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SailEngine, "held", held)
            answers.append(merged(table, given_, on, clauses))
    assert answers[0] == answers[1]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How the rows of the table were read: written for the engine, or held without it."""
    calls: list[str] = []
    write = sail._write

    def written(file: Path, relation: Any, most_rows: int | None, stop: Any) -> None:
        if RECORD_KEY in relation.schema.names and most_rows != 0:
            calls.append("written")
        write(file, relation, most_rows, stop)

    def held(self: SailEngine, relation: Any) -> pa.Table | None:
        calls.append("held")
        return ANSWERED(self, relation)

    monkeypatch.setattr(sail, "_write", written)
    monkeypatch.setattr(SailEngine, "held", held)
    return calls


@pytest.mark.parametrize("type", ["cow", "mor"])
def test_no_row_goes_to_the_engine(tmp_path: Path, type: str, joined: list[str]) -> None:
    table = make(tmp_path / "t", "text", rows("text", [(1, 1), (2, 2)], "t"), type=type)
    merge = (
        table.merge(rows("text", [(2, 3), (4, 4)], "s"), on="id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
    )
    result = merge.execute()
    assert (result.updated, result.inserted) == (1, 1)
    assert joined == ["held"]
    assert [each["word"] for each in found(table)] == ["s3", "t1", "s4"]


def test_values_that_are_no_columns_are_left_to_the_engine(tmp_path: Path, joined: list[str]) -> None:
    table = make(tmp_path / "t", "int", rows("int", [(1, 1), (2, 2)], "t"))
    table.merge(rows("int", [(2, 3)], "s"), on="id").when_matched_update({"n": "target.n + source.n"}).execute()
    assert joined == ["written"]
    assert [each["n"] for each in found(table)] == [5, 1]


def test_the_last_of_several_rows_with_one_key_wins(tmp_path: Path, joined: list[str]) -> None:
    table = make(tmp_path / "t", "int", rows("int", [(1, 1)], "t"))
    table.merge(rows("int", [(1, 2), (1, 3)], "s"), on="id").when_matched_update_all().execute()
    assert joined == ["written"]
    assert [each["word"] for each in found(table)] == ["s3"]
