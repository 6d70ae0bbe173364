"""What is taken as rows, and errors for what is not: always skep's own, naming the column."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import dataset

from skep_format.errors import InputError, KeyFieldError, SchemaError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.flow import NullInListWarning
from skep_table.write.input.given import arrow_schema, arrow_table, matched_names
from skep_table.write.local import LocalWriter

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})
BATCHES = pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)])


class Foreign:
    """Another library's frame, which speaks Arrow's C interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ROWS.__arrow_c_stream__(requested_schema)


def categorical() -> pl.DataFrame:
    nested = pl.col("v").cast(pl.Categorical)
    return pl.from_arrow(ROWS).with_columns(nested, pl.struct(nested.alias("x")).alias("s"))  # type: ignore[union-attr]


TAKEN: dict[str, Callable[[], Any]] = {
    "arrow": lambda: ROWS,
    "batch": lambda: ROWS.to_batches()[0],
    "reader": ROWS.to_reader,
    "dataset": lambda: dataset.dataset(ROWS),
    "scanner": lambda: dataset.dataset(ROWS).scanner(),
    "list of batches": BATCHES.to_batches,
    "generator of batches": lambda: (batch for batch in BATCHES.to_batches()),
    "generator of frames": lambda: (batch.to_pandas() for batch in BATCHES.to_batches()),
    "dict": ROWS.to_pydict,
    "dict of arrays": lambda: dict(zip(ROWS.column_names, ROWS.columns, strict=True)),
    "pandas": ROWS.to_pandas,
    "pandas index": lambda: ROWS.to_pandas().set_index("id"),
    "pandas index that is a column": lambda: ROWS.to_pandas().set_index("id", drop=False),
    "pandas levels": lambda: ROWS.to_pandas().set_index(["id", "v"]),
    "pandas index without a name": lambda: ROWS.to_pandas().set_index(pd.Index([7, 9])),
    "pandas categories": lambda: ROWS.to_pandas().astype({"v": "category"}),
    "polars": lambda: pl.from_arrow(ROWS),
    "polars lazy": lambda: pl.from_arrow(ROWS).lazy(),  # type: ignore[union-attr]
    "polars categories": categorical,
    "another library": Foreign,
}


def make(folder: Path, **options: Any) -> tuple[HudiTable, LocalWriter]:
    spec = TableSpec(name="t", schema=ROWS.schema, record_key=("id",))
    table = create_table(LocalStorage(str(folder)), spec)
    return table, LocalWriter(table.with_context(options=Options(options)))


def stored(table: HudiTable) -> list[dict[str, Any]]:
    return read(table.reload()).to_arrow().select(["id", "v"]).sort_by("id").to_pylist()


@pytest.mark.parametrize("kind", TAKEN)
def test_frames_that_are_taken(tmp_path: Path, kind: str) -> None:
    table, writer = make(tmp_path / "t")
    writer.upsert(TAKEN[kind]())
    assert stored(table) == ROWS.to_pylist()


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite_table", "delete"])
def test_what_a_read_returned_is_written(tmp_path: Path, operation: str) -> None:
    table, writer = make(tmp_path / "t")
    writer.upsert(ROWS)
    other, other_writer = make(tmp_path / "other")
    other_writer.upsert(read(table.reload()))
    assert stored(other) == ROWS.to_pylist()
    getattr(writer, operation)(read(table.reload()))
    times = {"insert": 2, "bulk_insert": 2, "delete": 0}.get(operation, 1)
    assert stored(table) == [row for row in ROWS.to_pylist() for _ in range(times)]


def test_an_answer_is_a_frame_for_others_too(tmp_path: Path) -> None:
    table, writer = make(tmp_path / "t")
    writer.upsert(ROWS)
    assert pl.DataFrame(read(table.reload()))["id"].to_list() == [1, 2]


def uneven() -> Iterator[pa.RecordBatch]:
    yield ROWS.to_batches()[0]
    yield pa.record_batch({"id": [1.5]})


@pytest.mark.parametrize(
    ("frame", "message", "column"),
    [
        (lambda: pd.DataFrame({"id": [1, 2], "v": ["a", 1]}), "column v .*values are int, str", "v"),
        (lambda: pd.DataFrame({"id": [1, 2], "v": [object(), None]}), "column v .*values are object", "v"),
        (lambda: pd.DataFrame({"id": [1, 2], "v": [{"x": 1}, {"x": "a"}]}), "column v", "v"),
        (lambda: pd.DataFrame({"id": [1, 2], "v": [1j, 2j]}), "column v", "v"),
        (lambda: pd.DataFrame({"id": pd.arrays.SparseArray([1, 2])}), "column id", "id"),
        (lambda: pd.DataFrame([[1, 2, 3]], columns=["id", "v", "v"]), "column v occurs twice", "v"),
        (lambda: pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("id", "a")])), "2 levels", None),
        (lambda: ROWS.to_pandas()["v"], r"Series is no frame(.|\n)*to_frame", None),
        (lambda: pl.Series("v", [1]), r"Series is no frame(.|\n)*to_frame", None),
        (lambda: pl.DataFrame({"v": pl.Series([object()], dtype=pl.Object)}), "column v holds Python objects", "v"),
        (lambda: pl.DataFrame({"v": pl.Series([1], dtype=pl.Int128)}), "column v", "v"),
        (lambda: pl.DataFrame({"v": [1]}).lazy().select("nowhere"), "can't be collected.*nowhere", None),
        (lambda: {"id": [1], "v": ["a", "b"]}, "differ in how many rows they have: id 1, v 2", None),
        (lambda: {"id": [1, 2], "v": ["a", 1]}, "column v .*values are int, str", "v"),
        (lambda: {"id": 1, "v": "a"}, r"column id is one int(.|\n)*from_pylist", "id"),
        (dict, "no columns", None),
        (ROWS.to_pylist, r"list is no frame(.|\n)*from_pylist", None),
        (lambda: [(1, "a")], "list is no frame", None),
        (lambda: iter(()), "no batches", None),
        (uneven, "batches have different columns", None),
        (lambda: pa.array([1]), "Int64Array is no frame", None),
        (lambda: pa.chunked_array([[1]]), "ChunkedArray is no frame", None),
        (lambda: "rows.csv", "str is no frame", None),
        (lambda: None, "NoneType is no frame", None),
    ],
)
def test_what_is_no_frame_is_an_error_of_skep(frame: Callable[[], Any], message: str, column: str | None) -> None:
    with pytest.raises(InputError, match=message) as error:
        arrow_table(frame())
    assert error.value.fields.get("column") == column


@pytest.mark.parametrize("kind", sorted(TAKEN.keys() - {"generator of batches", "generator of frames"}))
def test_any_frame_is_an_example_of_a_schema(kind: str) -> None:
    given = TAKEN[kind]()
    assert "id" in arrow_schema(given).names
    assert arrow_table(given).num_rows == 2, "reading the schema consumed rows"


def test_a_generator_is_no_example_of_a_schema() -> None:
    batches = (batch for batch in BATCHES.to_batches())
    with pytest.raises(InputError, match="read but once"):
        arrow_schema(batches)
    assert arrow_table(batches).num_rows == 2


# -- names in another case


@pytest.mark.parametrize(
    ("given", "wanted", "names"),
    [
        (["ID", "v"], ["id", "v"], ["id", "v"]),
        (["id", "ID"], ["id"], ["id", "ID"]),
        (["Id", "iD"], ["id"], ["Id", "iD"]),
        (["new", "V"], ["id", "v"], ["new", "v"]),
    ],
)
def test_names_are_matched_in_any_case(given: list[str], wanted: list[str], names: list[str]) -> None:
    assert matched_names(given, wanted) == names


@pytest.mark.parametrize(("names", "error"), [(["ID", "v"], KeyFieldError), (["id", "V"], SchemaError)])
def test_a_column_in_another_case_is_named_and_taken_by_option(
    tmp_path: Path, names: list[str], error: type[InputError]
) -> None:
    rows = ROWS.rename_columns(names)
    table, writer = make(tmp_path / "strict")
    with pytest.raises(error, match=r"in case only(.|\n)*skep\.write\.case\.sensitive=false"):
        writer.upsert(rows)
    assert stored(table) == []
    table, writer = make(tmp_path / "lenient", **{"skep.write.case.sensitive": "false"})
    writer.upsert(rows)
    writer.delete(rows.slice(1))
    assert stored(table) == ROWS.to_pylist()[:1]


NESTED = pa.struct([("a", pa.int64()), ("B", pa.list_(pa.struct([("C", pa.string())])))])
MAPPED = pa.map_(pa.string(), pa.struct([("Key", pa.int64())]))
OTHER_CASE = pa.struct([("b", pa.list_(pa.struct([("c", pa.string())]))), ("A", pa.int64())])
MAPPED_OTHER = pa.map_(pa.string(), pa.struct([("kEY", pa.int64())]))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_members_in_another_case_are_named_and_taken_by_option(tmp_path: Path, kind: str) -> None:
    """As Spark resolves the members of structs where case does not count."""
    schema = pa.schema([("id", pa.int64()), ("s", NESTED), ("m", MAPPED)])
    type_of = {"cow": TableType.COPY_ON_WRITE, "mor": TableType.MERGE_ON_READ}[kind]
    spec = TableSpec(name="t", schema=schema, record_key=("id",), type=type_of)
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    first = {"id": 1, "s": {"a": 1, "B": [{"C": "x"}]}, "m": [("k", {"Key": 1})]}
    LocalWriter(table).upsert(pa.Table.from_pylist([first], schema))
    given_schema = pa.schema([("ID", pa.int64()), ("S", OTHER_CASE), ("m", MAPPED_OTHER)])
    given = {"ID": 1, "S": {"A": 5, "b": [{"c": "y"}, None]}, "m": [("k", {"kEY": 2})]}
    rows = pa.Table.from_pylist([{**given, "S": None}, given], given_schema).slice(1)
    with pytest.raises(SchemaError, match=r"column s\.a of the table is missing(.|\n)*case\.sensitive=false"):
        LocalWriter(table.reload()).upsert(rows.rename_columns(["id", "s", "m"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NullInListWarning)
        LocalWriter(table.reload().with_options({"skep.write.case.sensitive": "false"})).upsert(rows)
    found = read(table.reload()).to_arrow().select(["id", "s", "m"])
    assert found.schema.field("s").type == NESTED
    expected = {"id": 1, "s": {"a": 5, "B": [{"C": "y"}, None]}, "m": [("k", {"Key": 2})]}
    assert found.to_pylist() == [expected]
