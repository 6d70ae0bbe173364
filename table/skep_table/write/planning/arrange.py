"""How bulk_insert arranges rows before it writes them: by Hudi's sort modes, by columns, or by a plug-in.

An arrangement assigns each row to one of several tasks, and defines the order in which a task writes its rows. The
engine without Spark has one task for each partition of the table; Spark has as many as it has cores, or as an option
sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import OptionError
from skep_format.options import Options, comma_list, one_of, option
from skep_format.schema.types import PARTITION_PATH, RECORD_KEY
from skep_table.keys.hashes import key_hashes
from skep_table.plug_ins import needed_plug_in

GROUP: Final = "skep.partitioners"
_BY_COLUMNS: Final = ("RDDCustomColumnsSortPartitioner", "RowCustomColumnsSortPartitioner")
_no_columns: tuple[str, ...] = ()

Codes = npt.NDArray[np.int32]


class SortMode(str, Enum):
    """Hudi's bulk_insert sort modes."""

    NONE = "NONE"
    GLOBAL_SORT = "GLOBAL_SORT"
    PARTITION_SORT = "PARTITION_SORT"
    PARTITION_PATH_REPARTITION = "PARTITION_PATH_REPARTITION"
    PARTITION_PATH_REPARTITION_AND_SORT = "PARTITION_PATH_REPARTITION_AND_SORT"


_BULK_INSERT = ("bulk_insert",)


def _sort_mode(text: str) -> SortMode:
    """Hudi's documents also name the first one NONE_SORT."""
    return SortMode.NONE if text.strip().upper() == "NONE_SORT" else one_of(SortMode)(text)


SORT_MODE = option(
    "hoodie.bulkinsert.sort.mode",
    _sort_mode,
    SortMode.NONE,
    "How bulk_insert arranges rows: as they come, or …",
    only=_BULK_INSERT,
)
PARTITIONER = option(
    "hoodie.bulkinsert.user.defined.partitioner.class",
    str,
    "",
    "Hudi's RowCustomColumnsSortPartitioner, or the name of an entry point of group skep.partitioners",
    only=_BULK_INSERT,
)
SORT_COLUMNS = option(
    "hoodie.bulkinsert.user.defined.partitioner.sort.columns",
    comma_list,
    _no_columns,
    "bulk_insert sorts by partition path and then by these columns",
    only=_BULK_INSERT,
)
PARALLELISM = option(
    "hoodie.bulkinsert.shuffle.parallelism", int, 0, "Tasks of a bulk_insert that arranges rows", only=_BULK_INSERT
)


class Partitioner(Protocol):
    """A plug-in: what an entry point of the group `skep.partitioners` is. Rows are keyed rows of the table."""

    def parts(self, rows: pa.Table, count: int) -> Codes:
        """For each row which of `count` tasks writes it."""
        ...

    def sort(self, rows: pa.Table) -> pa.Table:
        """The rows of one task in the order in which they are written."""
        ...


@dataclass(frozen=True, slots=True)
class Arrangement:
    """`by_range`: tasks take ranges of the sort columns' values, with bounds from a sample. `own`: a plug-in's name."""

    columns: tuple[str, ...] = ()
    by_range: bool = False
    by_path: bool = False
    own: str = ""
    tasks: int = 0

    @classmethod
    def of(cls, options: Options) -> Arrangement | None:
        """None: rows are written as they come. OptionError for settings that name no arrangement."""
        named, columns = options.value(PARTITIONER), options.value(SORT_COLUMNS)
        tasks = options.value(PARALLELISM)
        if named.rpartition(".")[2] in _BY_COLUMNS:
            if not columns:
                raise OptionError(f"{PARTITIONER.key}={named} needs {SORT_COLUMNS.key}", option=SORT_COLUMNS.key)
            named = ""
        if named:
            find_partitioner(named)
            return cls(own=named, tasks=tasks)
        if columns:
            return cls((PARTITION_PATH, *columns), by_range=True, tasks=tasks)
        keys = (PARTITION_PATH, RECORD_KEY)
        match options.value(SORT_MODE):
            case SortMode.GLOBAL_SORT:
                return cls(keys, by_range=True, tasks=tasks)
            case SortMode.PARTITION_SORT:
                return cls(keys, tasks=tasks)
            case SortMode.PARTITION_PATH_REPARTITION:
                return cls(by_path=True, tasks=tasks)
            case SortMode.PARTITION_PATH_REPARTITION_AND_SORT:
                return cls((PARTITION_PATH,), by_path=True, tasks=tasks)
        return None

    @property
    def shuffles(self) -> bool:
        """Whether rows move between tasks: by range, by partition path, or as the user's partitioner decides."""
        return self.by_range or self.by_path or bool(self.own)

    def check(self, schema: pa.Schema) -> None:
        """OptionError for sort columns that are not in `schema`, or whose type has no order."""
        for name in self.columns:
            at = schema.get_field_index(name)
            if at < 0 or pa.types.is_nested(schema.field(at).type):
                kind = "not there" if at < 0 else f"of type {schema.field(at).type}"
                raise OptionError(f"sort column {name} is {kind}", option=SORT_COLUMNS.key, found=name)

    def sort(self, rows: pa.Table) -> pa.Table:
        """The rows of one task in the order in which they are written."""
        if self.own:
            return find_partitioner(self.own).sort(rows)
        return rows.take(_order(rows, self.columns)) if self.columns else rows

    def parts(self, rows: pa.Table, count: int, bounds: pa.Table | None = None) -> Codes:
        """For each row which of `count` tasks writes it. `bounds` are the rows at which ranges begin."""
        if self.own:
            return np.asarray(find_partitioner(self.own).parts(rows, count), np.int32)
        if self.by_path:
            paths = rows.column(PARTITION_PATH).combine_chunks()
            return (key_hashes(paths) % np.uint64(count)).astype(np.int32)
        assert bounds is not None
        return _ranges(rows.select(self.columns), bounds)

    def bounds(self, samples: pa.Table, count: int) -> pa.Table:
        """From some rows, the ones at which `count` ranges of about one size begin, but for the first."""
        ordered = samples.select(self.columns).take(_order(samples, self.columns))
        at = [place * ordered.num_rows // count for place in range(1, count)]
        return ordered.take(pa.array(sorted({place for place in at if place < ordered.num_rows}), pa.int64()))


def _ranges(rows: pa.Table, bounds: pa.Table) -> Codes:
    both = pa.concat_tables([bounds, rows.cast(bounds.schema)])
    order = _order(both, rows.schema.names).to_numpy()
    is_bound = order < bounds.num_rows
    passed = np.cumsum(is_bound)
    codes = np.empty(rows.num_rows, np.int32)
    codes[order[~is_bound] - bounds.num_rows] = passed[~is_bound]
    return codes


def _order(rows: pa.Table, columns: tuple[str, ...] | list[str]) -> pa.Array:
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns])


def find_partitioner(name: str) -> Partitioner:
    """The plug-in of a name. UnsupportedError when there is none."""
    found: Partitioner = needed_plug_in(GROUP, name, "partitioner")
    return found
