"""The steps of a sync plan: typed, printable, and as JSON. A plan lists everything before any of it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from skep_catalog.entities import PartitionIndexes, TableEntry
from skep_catalog.entries import COMPLETION_MARKER, MARKER
from skep_format.errors import SyncError
from skep_sync.planning.changes import Files, SyncPoint
from skep_sync.planning.columns import ColumnChange
from skep_sync.planning.descriptors import COLUMNS, Drifted

MARKERS: Final = frozenset({f"parameter {MARKER}", f"parameter {COMPLETION_MARKER}"})
"""Changes that only record up to which commit an entry is synced."""

_LONGEST = 90  # characters of a value in a summary
_NAMED = 5  # so many partitions are named in a summary


@dataclass(frozen=True, slots=True)
class Change:
    """One difference of an entry: of what, the old value (None: nothing), and the new one."""

    what: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        if self.old is None:
            return f"+ {self.what} = {_short(self.new)}"
        if self.new is None:
            return f"- {self.what}"
        return f"~ {self.what}: {_short(self.old)} → {_short(self.new)}"


@dataclass(frozen=True, slots=True)
class PartitionTarget:
    """A partition as it should be registered."""

    path: str
    values: tuple[str, ...]
    name: str
    location: str
    files: Files | None = None


@dataclass(frozen=True, slots=True)
class AddDatabase:
    """A database that the metastore lacks."""

    database: str

    def summary(self) -> str:
        return f"create database {self.database}"

    def to_json(self) -> dict[str, Any]:
        return {"step": "create_database", "database": self.database}


@dataclass(frozen=True, slots=True)
class CreateEntry:
    """An entry that the metastore lacks, without partitions."""

    table: TableEntry

    def summary(self) -> str:
        keys = ", ".join(key.name for key in self.table.partition_keys) or "none"
        return f"create table {self.table.full_name}: {len(self.table.storage.columns)} columns, partition keys: {keys}"

    def to_json(self) -> dict[str, Any]:
        storage = self.table.storage
        return {
            "step": "create_table",
            "table": self.table.full_name,
            "location": storage.location,
            "input_format": storage.input_format,
            "columns": {column.name: column.type for column in storage.columns},
            "partition_keys": {key.name: key.type for key in self.table.partition_keys},
            "parameters": dict(self.table.parameters),
        }


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Partitions that the entry lacks."""

    table: TableEntry
    partitions: tuple[PartitionTarget, ...]

    def summary(self) -> str:
        return f"add {some_partitions([p.name for p in self.partitions])} to {self.table.full_name}"

    def to_json(self) -> dict[str, Any]:
        names = [partition.name for partition in self.partitions]
        return {"step": "add_partitions", "table": self.table.full_name, "partitions": names}


@dataclass(frozen=True, slots=True)
class MovePartitions:
    """Partitions whose entries point to another folder than the table has them in."""

    table: TableEntry
    partitions: tuple[PartitionTarget, ...]

    def summary(self) -> str:
        return f"correct the location of {some_partitions([p.name for p in self.partitions])} of {self.table.full_name}"

    def to_json(self) -> dict[str, Any]:
        moved = {partition.name: partition.location for partition in self.partitions}
        return {"step": "move_partitions", "table": self.table.full_name, "partitions": moved}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A list of files at `path` below the table, for readers that know nothing of Hudi."""

    path: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteManifests:
    """Lists that are written, or replaced, before the metastore gets their partitions."""

    table: TableEntry
    lists: tuple[Manifest, ...]

    def summary(self) -> str:
        files = sum(len(one.files) for one in self.lists)
        return f"write {len(self.lists)} list(s) of {files} base files for {self.table.full_name}"

    def to_json(self) -> dict[str, Any]:
        lists = {one.path: len(one.files) for one in self.lists}
        return {"step": "write_manifests", "table": self.table.full_name, "lists": lists}


@dataclass(frozen=True, slots=True)
class TouchPartitions:
    """Partitions that have new data under an unchanged entry: those who cache by the entry's time see it renewed."""

    table: TableEntry
    partitions: tuple[PartitionTarget, ...]

    def summary(self) -> str:
        return f"renew the time of {some_partitions([p.name for p in self.partitions])} of {self.table.full_name}"

    def to_json(self) -> dict[str, Any]:
        names = [partition.name for partition in self.partitions]
        return {"step": "touch_partitions", "table": self.table.full_name, "partitions": names}


@dataclass(frozen=True, slots=True)
class AlignPartitions:
    """Partitions whose own descriptors are not the table's: Hive reads them by these. `columns`: these, too."""

    table: TableEntry
    partitions: tuple[Drifted, ...]
    columns: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the partitions."""
        return tuple(partition.name for partition in self.partitions)

    @property
    def aspects(self) -> tuple[str, ...]:
        """What is corrected in one partition or another."""
        found = dict.fromkeys(aspect for partition in self.partitions for aspect in partition.aspects)
        return tuple(aspect for aspect in found if self.columns or aspect != COLUMNS)

    def summary(self) -> str:
        return f"correct the {', '.join(self.aspects)} of {some_partitions(self.names)} of {self.table.full_name}"

    def to_json(self) -> dict[str, Any]:
        return {
            "step": "align_partitions",
            "table": self.table.full_name,
            "aspects": list(self.aspects),
            "partitions": list(self.names),
        }


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """Partitions, by name, that the table no longer has; never their data."""

    table: TableEntry
    names: tuple[str, ...]

    def summary(self) -> str:
        return f"drop {some_partitions(self.names)} from {self.table.full_name} (entries only)"

    def to_json(self) -> dict[str, Any]:
        return {"step": "drop_partitions", "table": self.table.full_name, "partitions": list(self.names)}


@dataclass(frozen=True, slots=True)
class DropEntry:
    """An entry that skep made for a view which is not asked for any more."""

    table: TableEntry

    def summary(self) -> str:
        return f"drop table {self.table.full_name} (the entry only): a view of an earlier strategy"

    def to_json(self) -> dict[str, Any]:
        return {"step": "drop_table", "table": self.table.full_name}


@dataclass(frozen=True, slots=True)
class AlterEntry:
    """The one alteration of an entry, its last step, marker included. `expected`: the marker that it must still have.

    Changed columns and classes go to all partitions (`cascade`), or columns to those named by `cascade_to`. `reorder`:
    into an order that the metastore would refuse in one step.
    """

    table: TableEntry
    changes: tuple[Change, ...]
    cascade: bool = False
    expected: tuple[str, str] | None = None
    columns: tuple[ColumnChange, ...] = ()
    cascade_to: tuple[str, ...] = ()
    reorder: bool = False

    def without_markers(self) -> AlterEntry | None:
        """The same with the markers left where they are; None where nothing else changes."""
        left = {change.what.removeprefix("parameter "): change.old for change in self.changes if change.what in MARKERS}
        changes = tuple(change for change in self.changes if change.what not in MARKERS)
        parameters = {key: value for key, value in self.table.parameters.items() if key not in left}
        parameters |= {key: value for key, value in left.items() if value is not None}
        return replace(self, table=replace(self.table, parameters=parameters), changes=changes) if changes else None

    def summary(self) -> str:
        which = "all" if self.cascade else str(len(self.cascade_to))
        what = "columns" if self.columns else "descriptors"
        also = f", {what} of {which} partitions too" if self.cascade or self.cascade_to else ""
        lines = [f"alter table {self.table.full_name}{also}", *(f"    {change}" for change in self.columns)]
        return "\n".join([*lines, *(f"    {change}" for change in self.changes)])

    def to_json(self) -> dict[str, Any]:
        return {
            "step": "alter_table",
            "table": self.table.full_name,
            "cascade": self.cascade,
            "columns": [
                {"kind": c.kind.name.lower(), "column": c.column, "old": c.old, "new": c.new, "one_way": c.one_way}
                for c in self.columns
            ],
            "changes": [{"what": c.what, "old": c.old, "new": c.new} for c in self.changes],
        }


@dataclass(frozen=True, slots=True)
class ChangeIndexes:
    """Indexes of an entry's partitions that are missing, or not asked for any more."""

    table: TableEntry
    changes: PartitionIndexes

    def summary(self) -> str:
        adds = [f"add one of {', '.join(index)}" for index in self.changes.add]
        drops = [f"drop {name}" for name in self.changes.drop]
        return f"partition indexes of {self.table.full_name}: {'; '.join([*drops, *adds])}"

    def to_json(self) -> dict[str, Any]:
        add = [list(index) for index in self.changes.add]
        return {"step": "change_indexes", "table": self.table.full_name, "add": add, "drop": list(self.changes.drop)}


Step = (
    AddDatabase
    | CreateEntry
    | AddPartitions
    | MovePartitions
    | TouchPartitions
    | AlignPartitions
    | DropPartitions
    | DropEntry
    | WriteManifests
    | AlterEntry
    | ChangeIndexes
)


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What brings the metastore in line with the table; nothing, when `steps` is empty.

    `complete`: partitions were compared in full. `seen`: the entries that it was made from. `drifted`: by entry the
    partitions whose own descriptors are not the entry's, whatever of that the steps put right; known where all were
    looked at. `refused`: what the metastore can't hold, which is left out of the steps, or was found when they were
    taken: an error after them.
    """

    base_path: str
    database: str
    name: str
    point: SyncPoint | None
    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()
    complete: bool = False
    seen: Mapping[str, TableEntry | None] = field(default_factory=dict, repr=False, compare=False)
    drifted: Mapping[str, tuple[Drifted, ...]] = field(default_factory=dict, repr=False)
    refused: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """`database.name`."""
        return f"{self.database}.{self.name}"

    def __bool__(self) -> bool:
        return bool(self.steps or self.refused)

    def __str__(self) -> str:
        if not self:
            return f"{self.full_name}: nothing to do, in sync"
        refused = (f"  can't be registered: {what}" for what in self.refused)
        return "\n".join([f"{self.full_name}:", *(f"  {step.summary()}" for step in self.steps), *refused])

    def raise_refused(self) -> None:
        """SyncError when something of the table can't be registered in the metastore."""
        if self.refused:
            raise SyncError(
                f"sync of {self.full_name}: what fits is done; can't be registered: {'; '.join(self.refused)}",
                hint="change that in the table; until then engines do not see it, and the entry's marker stays behind",
                table=self.full_name,
                path=self.base_path,
                found=self.refused,
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.full_name,
            "base_path": self.base_path,
            "instant": self.point and self.point.requested_time,
            "in_sync": not self,
            "complete": self.complete,
            "steps": [step.to_json() for step in self.steps],
            "refused": list(self.refused),
            "warnings": list(self.warnings),
        }


def some_partitions(names: Sequence[str]) -> str:
    """A count of partitions with the first names."""
    shown = ", ".join(names[:_NAMED]) + (f", and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return f"{len(names)} partition{'' if len(names) == 1 else 's'} ({shown})"


def _short(text: str | None) -> str:
    text = text or '""'
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
