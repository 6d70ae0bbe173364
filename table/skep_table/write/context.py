"""What every task of one commit has to know, as plain values that travel to other machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skep_table.basefile import BaseFileOptions
from skep_table.errors import AlreadyExistsError
from skep_table.keys.dropped import DroppedColumns
from skep_table.keys.stored import StoredKeys
from skep_table.logfile.options import LogFileOptions
from skep_table.merge import MergeRule
from skep_table.names import PARTITION_METAFILE, Marker, join
from skep_table.properties import format_properties
from skep_table.schema.types import Schema
from skep_table.storage import Storage
from skep_table.timeline.metadata import WriteOperation
from skep_table.write.arrange import Arrangement
from skep_table.write.attempt import Attempt


@dataclass(frozen=True, slots=True)
class Announced:
    """The attempt as which a task runs, and the marker of the file that it begins with."""

    attempt: Attempt
    marker: Marker


@dataclass(frozen=True, slots=True)
class WriteContext:
    """One commit as its tasks see it.

    `schema` is that of the data columns in base files after the commit, to which logs add those `dropped`. `combine`
    asks for one row a key within a bucket. `auto_keys`: rows have no key of their own and get one when they are
    written. `keeps_equal_keys`: an insert into a file that holds its key adds a row. `arrangement` is that of a
    bulk_insert. `keys` tells the keys of stored rows. `announced`, by bucket number: the first file of each, where the
    driver has announced these; all markers of such a commit are listed.
    """

    storage: Storage
    instant_time: str
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

    @property
    def deletes(self) -> bool:
        return self.operation in (WriteOperation.DELETE, WriteOperation.DELETE_PREPPED)

    @property
    def appends(self) -> bool:
        """Whether rows go beside those of a base file without a look at keys."""
        return self.operation in (WriteOperation.INSERT, WriteOperation.BULK_INSERT) and self.keeps_equal_keys


def ensure_partition(storage: Storage, partition_path: str, instant_time: str) -> None:
    """Writes the partition metafile with the first data file of a partition; an existing one is never touched."""
    path = join(partition_path, PARTITION_METAFILE)
    if storage.exists(path):
        return
    depth = len(partition_path.split("/")) if partition_path else 0
    text = format_properties({"commitTime": instant_time, "partitionDepth": str(depth)}, ["partition metadata"])
    try:
        storage.create_exclusive(path, text, durable=False)
    except AlreadyExistsError:
        return  # another task was first
