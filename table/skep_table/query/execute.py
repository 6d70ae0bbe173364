"""Running the tasks of a plan: slices become batches of the answer's columns, filtered, with partition values put
in."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from skep_format.basefile import read_footer
from skep_format.basefile.encoding import constant
from skep_format.basefile.reader import open_base
from skep_format.logfile import read_blocks
from skep_format.schema.exact import cast_exactly
from skep_format.schema.types import COMMIT_TIME, RECORD_KEY
from skep_table.merge.rows import POSITION
from skep_table.query.filters.among import OneOf, both
from skep_table.query.filters.predicate import ColumnRef, IsIn, Predicate
from skep_table.query.plan import ReadTask, Scan
from skep_table.query.pruning.slices import record_keys
from skep_table.slices import read_slice
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP
from skep_table.view import FileSlice


def run(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The rows of one slice that belong to the answer, in batches of its schema.

    Where rows with one of many values are asked for (`Scan.only`), a text that all rows have comes as a dictionary.
    """
    scan = task.scan
    constants = scan.constants(task.slice)
    numbers_rows = scan.numbers_rows(task.slice)
    if POSITION in scan.columns and not numbers_rows:
        constants[POSITION] = pa.scalar(None, pa.int64())
    completed = task.complete is not None and _has_partial_updates(scan, task.slice)
    batches = read_slice(
        scan.table,
        task.complete if completed and task.complete else task.slice,
        columns=_columns_of_files(scan, constants),
        schema=scan.file_schema,
        as_of=scan.as_of,
        commit_times=None if completed or scan.commits_after_merge else scan.commit_times,
        condition=both(_pushed(scan, constants), _only(scan, task.slice, constants)),
        of_keys=_of_keys(scan) if task.slice.log_files else None,
        options=scan.options,
        history=scan.history,
        number_as=POSITION if numbers_rows else None,
    )
    for rows in batches:
        if scan.commit_times is not None:
            rows = rows.filter(scan.commit_times.mask(rows.column(COMMIT_TIME)))
        if scan.predicate is not None:
            looked_at = {name: value for name, value in constants.items() if name in scan.predicate.columns}
            rows = scan.predicate.filter(_with_constants(rows, looked_at, scan))
        if rows.num_rows:
            yield _with_constants(rows, constants, scan).select(list(scan.columns))


def _has_partial_updates(scan: Scan, found: FileSlice) -> bool:
    """Whether a log block has only the columns that an update set. Reads the headers of the blocks."""
    for log in found.log_files:
        with scan.table.storage.open_input(log.path) as file:
            if any(block.is_partial for block in read_blocks(file, log.path)):
                return True
    return False


def count(task: ReadTask) -> int:
    """The number of rows of the answer in a slice: from the footer where there are no logs and no filter."""
    scan, found = task.scan, task.slice
    if scan.predicate is None and scan.commit_times is None and not found.log_files and found.base_file is not None:
        return read_footer(scan.table.storage, found.base_file.path).num_rows
    return sum(batch.num_rows for batch in run(task))


def row_groups(task: ReadTask) -> tuple[int, int]:
    """How many row groups of a slice's base file are read, and how many it has. Reads the footer."""
    scan, base = task.scan, task.slice.base_file
    if base is None:
        return 0, 0
    constants = scan.constants(task.slice)
    # Log records may change any row, and a file of another schema may have other columns by the same names.
    may_prune = not task.slice.log_files and not scan.history and base.name.instant_time != METADATA_BOOTSTRAP
    condition = _pushed(scan, constants) if may_prune else None
    schema = scan.file_schema.select(_columns_of_files(scan, constants))
    with open_base(scan.table.storage, base.path, base.known_size) as file:
        return file.groups_left(condition, schema)


def _pushed(scan: Scan, constants: dict[str, pa.Scalar]) -> Predicate | None:
    """What rows of files can be left out by: conditions on columns that have the same type there."""
    from_file = scan.typed_as_in_files - constants.keys()
    return None if scan.predicate is None else scan.predicate.weakened(from_file)


def _only(scan: Scan, found: FileSlice, constants: dict[str, pa.Scalar]) -> OneOf | None:
    """The other condition, by which base files are read that logs do not change."""
    only = scan.only
    if only is None or found.log_files or only.column not in scan.typed_as_in_files - constants.keys():
        return None
    return only


def _of_keys(scan: Scan) -> Predicate | None:
    """The record keys that rows of the answer can have, where the filter binds them to a few and files state them."""
    config = scan.table.config
    if scan.predicate is None or not config.populate_meta_fields:
        return None
    keys = record_keys(scan.predicate, config)
    if keys is None:
        return None
    return Predicate(IsIn(ColumnRef((RECORD_KEY,), pa.string()), keys.drop_null()), str(scan.predicate))


def _columns_of_files(scan: Scan, constants: dict[str, pa.Scalar]) -> tuple[str, ...]:
    """What has to be read from files: something at least, since rows are counted by it."""
    needed = set(scan.columns_read) - constants.keys()
    if scan.commit_times is not None:
        needed.add(COMMIT_TIME)
    if not needed:
        has_meta = scan.table.config.populate_meta_fields
        needed.add(RECORD_KEY if has_meta else next(n for n in scan.schema.names() if n not in constants))
    return tuple(name for name in scan.schema.names() if name in needed)


def _with_constants(rows: pa.RecordBatch, constants: dict[str, pa.Scalar], scan: Scan) -> pa.RecordBatch:
    held = {*rows.schema.names, *constants}
    names = [name for name in scan.columns_read if name in held]
    fields, columns = list(scan.schema_of(names)), []
    for at, field in enumerate(fields):
        if field.name not in rows.schema.names:
            columns.append(_repeated(field.name, constants[field.name], rows.num_rows, scan.only))
            fields[at] = field.with_type(columns[-1].type)
        else:  # costs nothing where the type is the file's
            columns.append(cast_exactly(rows.column(field.name), field.type, field.name))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _repeated(name: str, value: pa.Scalar, rows: int, only: OneOf | None) -> pa.Array:
    if only is not None and name != only.column and value.is_valid and pa.types.is_string(value.type):
        return constant(value.as_py(), rows)
    return pa.repeat(value, rows)
