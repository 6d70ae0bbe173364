"""Properties of the write operations: whether they look keys up, where new rows go, what they replace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from skep_format.errors import OptionError
from skep_format.timeline.instant import Action
from skep_format.timeline.metadata import WriteOperation
from skep_table.table import HudiTable


class Replaces(Enum):
    """Which live file groups a commit replaces (Hudi: a replace commit)."""

    NOTHING = "nothing"
    PARTITIONS = "partitions"  # all groups of the partitions that the rows are in
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Traits:
    """How an operation treats its rows.

    `finds_keys`: the key of each row is looked up in the table. `prepped`: the rows' meta columns name their files.
    `fills_small_files`: new rows go into small files first. `streams`: rows are written as they arrive.
    """

    finds_keys: bool = False
    prepped: bool = False
    deletes: bool = False
    fills_small_files: bool = False
    streams: bool = False
    replaces: Replaces = Replaces.NOTHING

    @property
    def updates(self) -> bool:
        """Whether rows replace stored rows of their keys."""
        return self.finds_keys and not self.deletes

    def action(self, data_action: Action) -> Action:
        """The action of its instant; `data_action` is the action of plain writes of the table."""
        return data_action if self.replaces is Replaces.NOTHING else Action.REPLACE_COMMIT


TRAITS: Final[Mapping[WriteOperation, Traits]] = {
    WriteOperation.UPSERT: Traits(finds_keys=True, fills_small_files=True),
    WriteOperation.UPSERT_PREPPED: Traits(finds_keys=True, prepped=True, fills_small_files=True),
    WriteOperation.INSERT: Traits(fills_small_files=True),
    WriteOperation.BULK_INSERT: Traits(streams=True),
    WriteOperation.DELETE: Traits(finds_keys=True, deletes=True),
    WriteOperation.DELETE_PREPPED: Traits(finds_keys=True, deletes=True, prepped=True),
    WriteOperation.INSERT_OVERWRITE: Traits(replaces=Replaces.PARTITIONS),
    WriteOperation.INSERT_OVERWRITE_TABLE: Traits(replaces=Replaces.TABLE),
    WriteOperation.DELETE_PARTITION: Traits(replaces=Replaces.PARTITIONS),
}


_DELETION_OF: Final = {
    WriteOperation.UPSERT: WriteOperation.DELETE,
    WriteOperation.UPSERT_PREPPED: WriteOperation.DELETE_PREPPED,
}


def deletion_of(operation: WriteOperation) -> WriteOperation:
    """The operation that deletes the keys of rows without content. OptionError for one that does not look keys up."""
    if not TRAITS[operation].finds_keys:
        raise OptionError(
            f"rows without content (EmptyHoodieRecordPayload) delete by an upsert, not by {operation.value.lower()}",
            option="hoodie.datasource.write.payload.class",
            found=operation.value,
        )
    return _DELETION_OF.get(operation, operation)


def data_action(table: HudiTable) -> Action:
    """The action of plain writes: a delta commit in merge-on-read tables, else a commit."""
    return Action.DELTA_COMMIT if table.config.is_mor else Action.COMMIT
