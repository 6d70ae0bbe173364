"""Archived instants as rows of Parquet files: schema, writing in row groups, and merging files (format guide 3.2)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skep_format.avro_schemas import schema_of
from skep_format.batching import in_groups
from skep_format.errors import CorruptFileError, SkepError
from skep_format.instant_time import AFTER_ALL, CompletionTime, InstantTime
from skep_format.storage import Storage
from skep_format.timeline.instant import Instant

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

TIMES: Final = ("instantTime", "completionTime", "action")
CONTENTS: Final = ("metadata", "plan")
_RECORD: Final = "HoodieLSMTimelineInstant"
_VERSION: Final = 1
_GROUP_BYTES: Final = 8 << 20
_GROUP_ROWS: Final = 1_000
"""Of one row group: it is what is read for the content of a single instant."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A completed instant with the bytes of its files; `plan` is None for actions that have none."""

    instant: Instant
    metadata: bytes
    plan: bytes | None = None


def write_rows(storage: Storage, path: str, rows: Iterable[HistoryRow], release: str) -> None:
    """Writes one file, durable when it returns. The rows are taken as they come; of them a row group is in memory."""
    groups = in_groups(rows, lambda row: len(row.metadata) + len(row.plan or b""), _GROUP_BYTES, _GROUP_ROWS)
    _write(storage, path, map(_table, groups), release)


def _table(rows: Sequence[HistoryRow]) -> pa.Table:
    import pyarrow as pa

    columns: list[list[Any]] = [
        [row.instant.requested_time for row in rows],
        # Hudi's readers need one; an upgraded table's name may state none
        [row.instant.completion_time or CompletionTime(row.instant.requested_time) for row in rows],
        [row.instant.action.value for row in rows],
        [row.metadata for row in rows],
        [row.plan for row in rows],
        [_VERSION] * len(rows),
    ]
    return pa.table(columns, schema=_schema())


def _schema() -> pa.Schema:
    import pyarrow as pa

    texts = [pa.field(name, pa.string()) for name in TIMES]
    contents = [pa.field(name, pa.binary()) for name in CONTENTS]
    return pa.schema([*texts, *contents, pa.field("version", pa.int32(), nullable=False)])


def _write(storage: Storage, path: str, groups: Iterable[pa.Table], release: str) -> None:
    import pyarrow.parquet as pq

    from skep_format.basefile.keys import AVRO_SCHEMA, WRITER_MODEL

    footer = {WRITER_MODEL: "avro", AVRO_SCHEMA: json.dumps(schema_of(_RECORD, release))}
    with (
        storage.open_write(path) as out,
        pq.ParquetWriter(
            out, _schema(), compression="gzip", use_dictionary=False, write_statistics=list(TIMES), store_schema=False
        ) as file,
    ):
        for group in groups:
            file.write_table(group, row_group_size=max(1, group.num_rows))
        file.add_key_value_metadata(footer)
    storage.sync([path])


def read_rows(storage: Storage, path: str, columns: Sequence[str]) -> pa.Table:
    """Columns of all rows. FileNotFoundError, and CorruptFileError naming the file."""
    with opened(storage, path) as file:
        return file.read(columns=list(columns), use_threads=False).select(list(columns))


@contextlib.contextmanager
def opened(storage: Storage, path: str) -> Iterator[pq.ParquetFile]:
    """A file of the history, open; the errors of `read_rows`."""
    import pyarrow.parquet as pq

    with _damage_named(path), storage.open_input(path) as source, pq.ParquetFile(source) as file:
        yield file


@contextlib.contextmanager
def _damage_named(path: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (SkepError, FileNotFoundError):
        raise
    except (pa.ArrowException, KeyError, ValueError, TypeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # Arrow has none for a footer that it can't read
            raise
        raise damaged(path, error) from error


def damaged(path: str, error: object) -> CorruptFileError:
    """The error for a file of the history that can't be read."""
    return CorruptFileError(f"{path} of the timeline's history can't be read: {error}", path=path)


def merge_files(
    storage: Storage, sources: Sequence[str], target: str, release: str, check: Callable[[], object]
) -> None:
    """Writes the rows of several files into one, in the order of time, each instant once.

    A range of times after the other is read from all files, so that a row group is in memory whatever their size and
    order. `check` is called before each range.
    """
    import pyarrow as pa

    keys = pa.concat_tables([read_rows(storage, path, TIMES[::2]) for path in sources])
    size = 0  # of all rows, uncompressed
    for path in sources:
        with opened(storage, path) as file:
            size += sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups))
    at_once = max(1, min(_GROUP_ROWS, _GROUP_BYTES * max(1, keys.num_rows) // max(1, size)))

    def groups() -> Iterator[pa.Table]:
        for first, last in _ranges(keys.column(0), at_once):
            check()
            yield _in_order(pa.concat_tables([_within(storage, path, first, last) for path in sources]))

    _write(storage, target, groups(), release)


def _ranges(times: pa.ChunkedArray, at_once: int) -> Iterator[tuple[InstantTime, InstantTime]]:
    """The first and last of so many times after the other, in order."""
    import pyarrow.compute as pc

    ordered = pc.unique(times).sort()
    for start in range(0, len(ordered), at_once):
        last = min(start + at_once, len(ordered)) - 1
        yield InstantTime(ordered[start].as_py()), InstantTime(ordered[last].as_py())


def _within(storage: Storage, path: str, first: InstantTime, last: InstantTime) -> pa.Table:
    """The rows of a range of requested times, both ends included."""
    import pyarrow.compute as pc

    groups = read_footer(storage, path).groups_within(first, last)
    with opened(storage, path) as file:
        rows = file.read_row_groups(groups, columns=_schema().names, use_threads=False).cast(_schema())
    times = rows.column(TIMES[0])
    return rows.filter(pc.and_(pc.greater_equal(times, str(first)), pc.less_equal(times, str(last))))


@dataclass(frozen=True, slots=True)
class HistoryFooter:
    """What a file of the history states of each row group: of both times the bounds, where they are known."""

    ranges: tuple[Mapping[str, tuple[InstantTime, InstantTime]], ...]

    @property
    def num_row_groups(self) -> int:
        """How many there are."""
        return len(self.ranges)

    def groups_within(self, first: InstantTime, last: InstantTime) -> list[int]:
        """The row groups that may hold instants of a range."""
        known = [each.get(TIMES[0], (first, last)) for each in self.ranges]
        return [at for at, (low, high) in enumerate(known) if first.is_at_or_before(high) and last.is_at_or_after(low)]

    def latest(self, group: int) -> list[InstantTime]:
        """The latest requested and completion time in a row group; a bound after all where one is not known."""
        return [self.ranges[group].get(column, (AFTER_ALL, AFTER_ALL))[1] for column in TIMES[:2]]


def read_footer(storage: Storage, path: str) -> HistoryFooter:
    """The footer of a file, compared with itself: else Arrow would end the process at some of its columns. Errors as of
    `read_rows`.
    """
    import pyarrow.parquet as pq

    from skep_format.basefile.row_groups import RowGroups

    with _damage_named(path), storage.open_input(path) as source:
        stated = RowGroups(source, path).metadata()
        if stated is None:  # it has more than is known here
            return HistoryFooter(({},) * pq.read_metadata(source).num_row_groups)
        return HistoryFooter(tuple(_ranges_in(stated.row_group(at)) for at in range(stated.num_row_groups)))


def _ranges_in(group: pq.RowGroupMetaData) -> dict[str, tuple[InstantTime, InstantTime]]:
    chunks = map(group.column, range(group.num_columns))
    known = {each.path_in_schema: each.statistics for each in chunks if each.path_in_schema in TIMES[:2]}
    return {
        name: (InstantTime(stated.min), InstantTime(stated.max))
        for name, stated in known.items()
        if stated is not None and stated.has_min_max
    }


def _in_order(rows: pa.Table) -> pa.Table:
    """Sorted by time, with the last one of the rows of an instant."""
    import pyarrow as pa
    import pyarrow.compute as pc

    last = rows.select(TIMES[::2]).append_column("at", pa.array(range(rows.num_rows), pa.int64()))
    kept = last.group_by(list(TIMES[::2])).aggregate([("at", "max")])
    order = pc.sort_indices(kept, [(name, "ascending") for name in TIMES[::2]])
    return rows.take(kept.column("at_max").take(order))
