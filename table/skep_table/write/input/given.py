"""What callers bring as rows, made into Arrow tables: frames, readers, datasets, batches, columns, results of reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from skep_format.errors import InputError, SchemaError
from skep_table.query.result import ReadResult
from skep_table.write.input.row_input import OnceInput, RereadInput, RowInput, TableInput

# What a frame may be; Spark's are for the engine of `skep_writer`.
FRAMES: Final = (
    "a Spark, pandas or polars frame, an Arrow table, reader or dataset, record batches, a dict of columns, or what a"
    " read returned"
)
_BY_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)


def row_input(frame: object, limit_bytes: int = sys.maxsize, folder: str = "") -> RowInput:
    """The rows of a frame, to be read as often as needed; lazy frames are evaluated.

    Of readers, generators and answers of reads, which can be read but once, up to `limit_bytes` are kept in memory and
    the others in a temporary file in `folder`. InputError for what is no frame, SchemaError (naming the column) for
    values that make no column of one type; of streams these errors come when the rows are read.
    """
    if isinstance(frame, RowInput):
        return frame
    once = partial(OnceInput, limit_bytes=limit_bytes, folder=folder)
    if isinstance(frame, pa.Table):
        return TableInput(frame)
    if isinstance(frame, pa.RecordBatch):
        return TableInput(pa.Table.from_batches([frame]))
    if isinstance(frame, pa.RecordBatchReader):
        return once(frame.schema, iter(frame))
    if isinstance(frame, ReadResult):
        return once(frame.schema, frame.to_batches())
    library = _library(frame)
    if library == "pandas":
        return TableInput(_of_pandas(frame))
    if library == "polars":
        return TableInput(_of_polars(frame))
    if library == "pyarrow" and hasattr(frame, "to_table"):  # a dataset, or a scanner of one
        return _of_dataset(frame, once)
    if isinstance(frame, Mapping):
        return TableInput(_of_columns(frame))
    if isinstance(frame, Iterator):
        return _of_iterator(frame, once)
    if isinstance(frame, (list, tuple)):
        return TableInput(_of_batches(frame))
    if hasattr(frame, "__arrow_c_stream__") and not isinstance(frame, pa.ChunkedArray):
        try:
            reader = pa.RecordBatchReader.from_stream(frame)
        except _BY_ARROW as error:
            raise InputError(f"the {_kind(frame)} does not make an Arrow table: {error}", found=_kind(frame)) from error
        return once(reader.schema, iter(reader))
    raise _no_frame(frame)


def arrow_table(frame: object) -> pa.Table:
    """All rows of a frame in memory. Errors are those of `row_input`."""
    return row_input(frame).table()


def arrow_schema(frame: object) -> pa.Schema:
    """The columns of a frame, without reading rows where the frame knows them. Errors are those of `row_input`.

    InputError also for an iterator: reading its first batch would take that from who writes the rows.
    """
    if isinstance(frame, Iterator) and not isinstance(frame, pa.RecordBatchReader):
        raise InputError(
            f"a {_kind(frame)} can be read but once, so it is no example of a schema",
            hint="give the schema of its batches",
        )
    return row_input(frame).schema


def _library(frame: object) -> str:
    return type(frame).__module__.partition(".")[0]


def _kind(frame: object) -> str:
    return f"{type(frame).__module__}.{type(frame).__qualname__}"


def _no_frame(frame: object, hint: str | None = None) -> InputError:
    return InputError(
        f"a {_kind(frame)} is no frame: expected {FRAMES}", hint=hint, found=type(frame).__qualname__, expected=FRAMES
    )


def _of_pandas(frame: Any) -> pa.Table:
    import pandas

    if not isinstance(frame, pandas.DataFrame):
        hint = "series.to_frame() makes a frame of one column" if isinstance(frame, pandas.Series) else None
        raise _no_frame(frame, hint)
    if frame.columns.nlevels > 1:
        raise SchemaError(
            f"the columns of the frame have {frame.columns.nlevels} levels",
            hint="name each by one text: frame.columns = ['_'.join(names) for names in frame.columns]",
            found=tuple(map(str, frame.columns)),
        )
    for name in frame.columns[frame.columns.duplicated()]:
        raise SchemaError(f"column {name} occurs twice", column=str(name))
    # An index with a name is a column; one without is the number of a row.
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if named:
        frame = frame.reset_index(level=named)
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except _BY_ARROW as error:
        columns = ((str(name), frame[name]) for name in frame.columns)
        raise _mixed(columns, pa.Array.from_pandas, "pandas", error) from error


def _of_polars(frame: Any) -> pa.Table:
    import polars

    if isinstance(frame, polars.LazyFrame):
        try:
            frame = frame.collect()
        except polars.exceptions.PolarsError as error:
            raise InputError(f"the lazy frame can't be collected: {error}") from error
    if not isinstance(frame, polars.DataFrame):
        hint = "series.to_frame() makes a frame of one column" if isinstance(frame, polars.Series) else None
        raise _no_frame(frame, hint)
    for name, kind in frame.schema.items():
        if kind == polars.Object:  # the values would be addresses in memory
            raise SchemaError(f"column {name} holds Python objects", column=name, found=str(kind))
    try:
        # Plain texts in categories: Arrow has no kernels for views in them.
        return frame.to_arrow(compat_level=polars.CompatLevel.oldest())
    except (*_BY_ARROW, polars.exceptions.PolarsError) as error:
        columns = ((name, frame.get_column(name)) for name in frame.columns)
        raise _mixed(columns, lambda column: column.to_frame().to_arrow(), "polars", error) from error


def _of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    if not columns:
        raise InputError("the dict has no columns", expected="name → values")
    arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, values in columns.items():
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise SchemaError(
                f"column {name} is one {type(values).__name__}, not a list or array of values",
                hint="rows as dicts are pa.Table.from_pylist(rows)",
                column=str(name),
            )
        try:
            arrays[str(name)] = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
        except _BY_ARROW as error:
            raise _mixed([(str(name), values)], pa.array, "dict", error) from error
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InputError(f"the columns differ in how many rows they have: {found}", found=lengths)
    return pa.table(arrays)


def _of_dataset(frame: Any, once: Callable[..., RowInput]) -> RowInput:
    """Files of a dataset are read again; a scanner, or a dataset made of a reader, may be read but once."""
    from pyarrow import dataset

    if isinstance(frame, dataset.Dataset) and not isinstance(frame, dataset.InMemoryDataset):
        return RereadInput(frame.schema, frame.to_batches)
    schema = frame.projected_schema if isinstance(frame, dataset.Scanner) else frame.schema
    return once(schema, iter(frame.to_batches()))


def _of_batches(batches: Iterable[object]) -> pa.Table:
    tables = [_one_of(batches, batch) for batch in batches]
    if not tables:
        raise _no_batches()
    try:
        return pa.concat_tables(tables)
    except pa.ArrowException as error:
        raise SchemaError(f"the batches have different columns: {error}") from error


def _of_iterator(batches: Iterator[object], once: Callable[..., RowInput]) -> RowInput:
    """The first batch has the columns of all."""
    head = next(batches, None)
    if head is None:
        raise _no_batches()
    first = _one_of(batches, head)

    def tables() -> Iterator[pa.RecordBatch]:
        yield from first.to_batches()
        for batch in batches:
            try:
                table = pa.concat_tables([first.slice(0, 0), _one_of(batches, batch)])
            except pa.ArrowException as error:
                raise SchemaError(f"the batches have different columns: {error}") from error
            yield from table.to_batches()

    return once(first.schema, tables())


def _one_of(batches: object, batch: object) -> pa.Table:
    if isinstance(batch, Mapping):
        raise _no_frame(batches, "rows as dicts are pa.Table.from_pylist(rows)")
    if _library(batch) == "builtins":  # numbers, texts, tuples: not a list of batches
        raise _no_frame(batches)
    return arrow_table(batch)


def _no_batches() -> InputError:
    return InputError("there are no batches, so no columns are known", hint="an empty Arrow table has a schema")


def _mixed(
    columns: Iterable[tuple[str, Any]], convert: Callable[[Any], object], of: str, error: Exception
) -> SchemaError:
    """The error for the first column that does not convert by itself, with the kinds of values in it."""
    for name, values in columns:
        try:
            convert(values)
        except _BY_ARROW as reason:
            kinds = sorted({type(value).__name__ for value in values if value is not None})
            return SchemaError(
                f"column {name} can't be made one of Arrow: {_reason(reason)}; its values are {', '.join(kinds[:5])}",
                hint="give all its values one type",
                column=name,
                found=tuple(kinds),
            )
    return SchemaError(f"the {of} frame can't be made an Arrow table: {_reason(error)}")


def _reason(error: Exception) -> str:
    return str(error.args[0]) if error.args else str(error)


def matched_names(given: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The names of columns, those that differ from one of `wanted` in case only as that is written.

    A name that is meant exactly, and one of several that would come to the same, stay as they are.
    """
    by_lower = {name.lower(): name for name in wanted}
    meant = [by_lower.get(name.lower(), name) for name in given]
    return [name if name in wanted or meant.count(to) > 1 else to for name, to in zip(given, meant, strict=True)]


def matched_schema(given: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Columns, and members of structs at any depth, with the names that `matched_names` gives them."""
    return pa.schema(_matched_fields(list(given), list(wanted)), given.metadata)


def _matched_fields(given: Sequence[pa.Field], wanted: Sequence[pa.Field]) -> list[pa.Field]:
    known = {field.name: field.type for field in wanted}
    names = matched_names([field.name for field in given], list(known))
    return [
        field.with_name(name).with_type(_matched_type(field.type, known.get(name)))
        for field, name in zip(given, names, strict=True)
    ]


def _matched_type(given: pa.DataType, wanted: pa.DataType | None) -> pa.DataType:
    if wanted is None or not pa.types.is_nested(given):
        return given
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        return pa.struct(_matched_fields(list(given), list(wanted)))
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        item = given.item_field.with_type(_matched_type(given.item_type, wanted.item_type))
        return pa.map_(given.key_field, item, given.keys_sorted)
    for is_kind, make in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_kind(given) and hasattr(wanted, "value_type"):
            return make(given.value_field.with_type(_matched_type(given.value_type, wanted.value_type)))
    return given
