"""What every task of one commit needs, as plain values that can be sent to other machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from skep_format.basefile import BaseFileOptions
from skep_format.instant_time import InstantTime
from skep_format.logfile.options import LogFileOptions
from skep_format.names import PARTITION_METAFILE, Marker
from skep_format.options import of_option
from skep_format.schema.types import Schema
from skep_format.storage import Storage
from skep_format.table_config.keys import CdcMode
from skep_format.timeline.metadata import WriteOperation
from skep_format.versions import TableFormat
from skep_table.keys.partition_path import DroppedColumns
from skep_table.keys.stored import StoredKeys
from skep_table.merge import MergeRule
from skep_table.slices.options import SPILL_FOLDER
from skep_table.write.output.attempt import Attempt
from skep_table.write.output.written import WrittenKeys
from skep_table.write.partial import PartialUpdate
from skep_table.write.planning.arrange import Arrangement
from skep_table.write.planning.options import MEMORY_BYTES

if TYPE_CHECKING:  # tasks import it where there are statistics to be kept
    from skep_table.metadata_write.facts.files import ColumnReader


@dataclass(frozen=True, slots=True)
class Announced:
    """The attempt as which a task runs, and the marker of the file that it begins with."""

    attempt: Attempt
    marker: Marker


@dataclass(frozen=True, slots=True)
class Memory:
    """How many bytes of Arrow data are held before rows go to a temporary file in `folder` (empty: the system's)."""

    max_bytes: int = of_option(MEMORY_BYTES)
    folder: str = of_option(SPILL_FOLDER)

    def shared(self, tasks: int) -> Memory:
        """The part of one of several tasks that run at the same time."""
        return replace(self, max_bytes=max(1, self.max_bytes // tasks))


@dataclass(frozen=True, slots=True)
class WriteContext:
    """One commit as its tasks see it.

    `schema` is that of the data columns in base files after the commit, to which logs add those `dropped`. `combine`
    keeps one row for each key within a bucket. `auto_keys`: rows have no key of their own and get one when they are
    written. `keeps_equal_keys`: an insert into a file that holds its key adds a row. `arrangement` is that of a
    bulk_insert. `keys` computes the keys of stored rows. `announced`, by bucket number: the first file of each, where
    the driver has announced these; all markers of such a commit are listed. `memory` bounds what one task holds.
    `on_written` is called with the new keys of each finished base file: see `Index.on_written`. `partial`: of some
    rows, or of all, only some columns count. `changes` is what change logs hold, in a table that has them. `facts`
    reads of finished files what column statistics record, in a table that keeps them. `event_time` is the column whose
    bounds stats record; empty for none. `metafile` is the name of the table's partition metafiles. `key_column`:
    see `KeyGenerator.column_of_key`.
    """

    storage: Storage
    format: TableFormat
    instant_time: InstantTime
    operation: WriteOperation
    schema: Schema
    rule: MergeRule
    files: BaseFileOptions
    max_file_bytes: int
    combine: bool = True
    auto_keys: bool = False
    keeps_equal_keys: bool = True
    logs: LogFileOptions = field(default_factory=LogFileOptions)
    arrangement: Arrangement | None = None
    keys: StoredKeys | None = None
    partition_fields: tuple[str, ...] = ()
    dropped: DroppedColumns = field(default_factory=DroppedColumns)
    announced: Mapping[int, Announced] | None = None
    memory: Memory = field(default_factory=Memory)
    on_written: Callable[[WrittenKeys], None] | None = None
    partial: PartialUpdate | None = None
    changes: CdcMode | None = None
    facts: ColumnReader | None = None
    event_time: str = ""
    metafile: str = PARTITION_METAFILE
    key_column: str | None = None

    @property
    def deletes(self) -> bool:
        """Whether the operation deletes the rows that it is given."""
        return self.operation in (WriteOperation.DELETE, WriteOperation.DELETE_PREPPED)

    @property
    def appends(self) -> bool:
        """Whether rows are added to those of a base file without comparing keys."""
        return self.operation in (WriteOperation.INSERT, WriteOperation.BULK_INSERT) and self.keeps_equal_keys
