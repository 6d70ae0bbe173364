"""From the wanted entry, the present one and the timeline's changes of partitions to a list of steps.

Pure: values in, values out. Per entry at most one alteration, and that last: a marker is never ahead of its partitions.
What others have put into an entry stays: their parameters, owner, comments on columns that the table has none for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from skep_catalog.entities import Column, StorageDescriptor, TableEntry, partition_name
from skep_catalog.entries import COMPLETION_MARKER, MARKER, SCHEMA_PARTS
from skep_catalog.lengths import (
    COMMENT,
    KEY_COMMENT,
    METASTORE_LENGTHS,
    Lengths,
    is_shortened,
    partition_too_long,
)
from skep_catalog.type_text import same_type
from skep_format.errors import FormatError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_sync.options import Cascade
from skep_sync.planning.changes import PartitionChanges, SyncPoint
from skep_sync.planning.columns import SETTING, column_changes, ordered, refused
from skep_sync.planning.descriptors import CLASSES, COLUMNS, Drifted, drift
from skep_sync.planning.locations import path_below, registered_there
from skep_sync.planning.steps import (
    MARKERS,
    AddPartitions,
    AlignPartitions,
    AlterEntry,
    Change,
    CreateEntry,
    DropPartitions,
    MovePartitions,
    PartitionTarget,
    Step,
    TouchPartitions,
)
from skep_sync.values import (
    INTEGERS,
    Extractor,
    canonical_value,
    is_number,
    partition_values,
)

EXTERNAL: Final = "EXTERNAL_TABLE"


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """How the table's partition paths become partitions of an entry."""

    base_path: str
    keys: tuple[str, ...]
    extractor: Extractor
    decode: bool
    types: tuple[str, ...] = ()
    lengths: Lengths = METASTORE_LENGTHS

    def target(self, path: str) -> PartitionTarget:
        """A partition path as it should be registered. FormatError where it does not fit the partition keys."""
        values = partition_values(path, self.extractor, self.keys, decode=self.decode)
        return PartitionTarget(path, values, partition_name(self.keys, values), f"{self.base_path}/{path}")

    def values(self, path: str) -> tuple[str, ...] | None:
        """The values of a path; None where it does not fit the partition keys."""
        try:
            return self.target(path).values
        except FormatError:
            return None

    def known_as(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Values by what they mean to their keys' types: `01` is `1` to an int, `2024-1-5` a date like `2024-01-05`."""
        return tuple(map(canonical_value, values, self.types)) if self.types else values

    @property
    def spells_alike(self) -> bool:
        """Whether a value of a key may be spelt in several ways: `1` and `01`, for example."""
        return any(kind == "date" or kind in INTEGERS for kind in self.types)

    def misfit(self, target: PartitionTarget) -> str | None:
        """Why no entry can have a partition; None where one can."""
        for key, value, kind in zip(self.keys, target.values, self.types, strict=False):
            if kind == "timestamp" and is_number(value):
                return f"partition {target.name}: {value} is no timestamp, the type of its key {key}"
        return partition_too_long(target.name, target.values, self.lengths)

    def shared(self, changes: PartitionChanges) -> list[tuple[str, ...]]:
        """The values that several partition paths have."""
        counts = Counter(self.target(path).values for path in changes.live | changes.emptied)
        return [values for values, count in counts.items() if count > 1]

    def names(self, path: str) -> set[str]:
        """The names under which the metastore may have the partition of a path."""
        target = self.target(path)
        return {target.name, partition_name(self.keys, self.known_as(target.values))}

    def all_names(self, paths: Iterable[str]) -> list[str]:
        """The same of several paths, each once."""
        return sorted(set().union(*map(self.names, paths)))


def marker_of(entry: TableEntry | None) -> SyncPoint | None:
    """The commit up to which an entry is synced, by its parameters."""
    if entry is None or not (time := entry.parameters.get(MARKER)):
        return None
    completed = entry.parameters.get(COMPLETION_MARKER)
    return SyncPoint(InstantTime(time), None if completed is None else CompletionTime(completed))


def entry_steps(
    wanted: TableEntry,
    actual: TableEntry | None,
    point: SyncPoint | None,
    partitions: list[Step],
    *,
    cascade: Cascade = Cascade.ALL,
    touched: Sequence[str] = (),
    stale: Sequence[Drifted] = (),
    conditional: bool = False,
    full: bool = False,
    reorder: bool = False,
) -> list[Step]:
    """The steps of one entry around those of its partitions. `touched`: partitions written since the last sync;
    `stale`: partitions whose own descriptors are known not to be the entry's.

    `conditional`: an alteration that would move nothing but the markers is left out. `full`, `reorder`: see `merged`.
    """
    marked = _markers(point)
    if actual is None:
        created = replace(wanted, parameters={**wanted.parameters, **({} if partitions else marked)})
        return [CreateEntry(created), *partitions, *([_alter_new(wanted, marked)] if partitions and marked else [])]
    target = merged(wanted, actual, marked, full=full, reorder=reorder)
    changes = differences(actual, target)
    columns = column_changes(actual.storage.columns, target.storage.columns)
    cascading = bool(columns) and bool(target.partition_keys)
    if not (cascading and cascade is Cascade.ALL):  # else the alteration brings all partitions in line
        seen_to = {name for step in partitions if isinstance(step, DropPartitions) for name in step.names}
        seen_to |= {p.name for step in partitions if isinstance(step, MovePartitions) for p in step.partitions}
        mended = [
            one for one in stale if one.name not in seen_to and (cascade is Cascade.ALL or one.aspects != (COLUMNS,))
        ]
        if mended:
            partitions = [*partitions, AlignPartitions(target, tuple(mended), columns=cascade is Cascade.ALL)]
    if not changes or (conditional and not partitions and all(change.what in MARKERS for change in changes)):
        return partitions
    # Other classes, by another strategy for example, are the partitions', too; after a full comparison each is known.
    classes = not full and bool(target.partition_keys) and bool({*drift(actual.storage, target.storage)} - {COLUMNS})
    before = actual.parameters.get(MARKER)
    alter = AlterEntry(
        target,
        tuple(changes),
        cascade=(cascading and cascade is Cascade.ALL) or classes,
        expected=(MARKER, before) if before is not None else None,
        columns=tuple(columns),
        cascade_to=tuple(touched) if cascading and cascade is Cascade.TOUCHED else (),
        reorder=reorder,
    )
    return [*partitions, alter]


def _alter_new(wanted: TableEntry, marked: Mapping[str, str]) -> AlterEntry:
    table = replace(wanted, parameters={**wanted.parameters, **marked})
    return AlterEntry(table, tuple(Change(f"parameter {key}", None, value) for key, value in marked.items()))


def _markers(point: SyncPoint | None) -> dict[str, str]:
    if point is None:
        return {}
    markers: dict[str, str] = {MARKER: point.requested_time}
    if point.completion_time is not None:
        markers[COMPLETION_MARKER] = point.completion_time
    return markers


def merged(
    wanted: TableEntry,
    actual: TableEntry,
    marked: Mapping[str, str],
    *,
    full: bool = False,
    reorder: bool = False,
) -> TableEntry:
    """`actual` as it should be: what skep manages from `wanted`, all else as it is.

    A sync takes from an entry the right to delete the table's data with a DROP, and never gives it. `full`:
    everything is compared, and its partition keys get the types of the table. `reorder`: its columns then get the
    table's order, although the metastore takes that in two alterations only.
    """
    parameters = {key: value for key, value in actual.parameters.items() if not key.startswith(SCHEMA_PARTS)}
    parameters |= {**wanted.parameters, **marked}
    table_type = actual.table_type
    if wanted.table_type == EXTERNAL:
        table_type = EXTERNAL
    elif actual.table_type == EXTERNAL and "EXTERNAL" in actual.parameters:
        parameters["EXTERNAL"] = actual.parameters["EXTERNAL"]
    old, new = actual.storage, wanted.storage
    location = old.location if registered_there(old.location, new.location) else new.location
    columns = _with_comments(new.columns, old.columns)
    return replace(
        actual,
        table_type=table_type,
        parameters=parameters,
        storage=replace(
            old,
            columns=columns if reorder else ordered(old.columns, columns),
            location=location,
            **{name: getattr(new, name) for name in CLASSES},
            serde_parameters=_serde_parameters(old, new),
            bucket_columns=new.bucket_columns or old.bucket_columns,
            num_buckets=new.num_buckets or old.num_buckets,
        ),
        partition_keys=_with_docs(actual.partition_keys, wanted.partition_keys, types=full),
    )


def _serde_parameters(old: StorageDescriptor, new: StorageDescriptor) -> dict[str, str]:
    parameters = {**old.serde_parameters, **new.serde_parameters}
    path = old.serde_parameters.get("path")
    if path is not None and registered_there(path, new.serde_parameters.get("path")):
        parameters["path"] = path  # s3 or s3a: as it was registered
    return parameters


def _with_comments(wanted: tuple[Column, ...], actual: tuple[Column, ...]) -> tuple[Column, ...]:
    """The table's comments win; where it has none, those in the metastore stay."""
    known = {column.name.lower(): column.comment for column in actual}
    return tuple(replace(c, comment=_comment(c.comment, known.get(c.name.lower()), COMMENT)) for c in wanted)


def _comment(wanted: str | None, actual: str | None, most: int) -> str | None:
    """A comment that was shortened to fit stays whole in a metastore that holds it whole."""
    if not wanted or (actual and is_shortened(wanted, actual, most)):
        return actual or wanted
    return wanted


def _with_docs(keys: tuple[Column, ...], wanted: tuple[Column, ...], *, types: bool) -> tuple[Column, ...]:
    """Partition keys keep their names; their comments follow the table, their types where asked for, and where they are
    timestamps: of values that are none no engine reads the table."""
    known = {key.name.lower(): key for key in wanted}

    def kept(key: Column) -> Column:
        other = known[key.name.lower()]
        differs = (types or key.type == "timestamp") and not same_type(key.type, other.type)
        comment = _comment(other.comment, key.comment, KEY_COMMENT)
        return replace(key, type=other.type if differs else key.type, comment=comment)

    return tuple(map(kept, keys))


def differences(actual: TableEntry, target: TableEntry) -> list[Change]:
    """What an alteration would change, in words. Empty: nothing."""
    changes = _column_changes(actual.storage.columns, target.storage.columns)
    changes += [
        Change(f"comment of partition key {new.name}", old.comment or "", new.comment)
        for old, new in zip(actual.partition_keys, target.partition_keys, strict=True)
        if (old.comment or "") != (new.comment or "")
    ]
    changes += [
        Change(f"type of partition key {new.name}", old.type, new.type)
        for old, new in zip(actual.partition_keys, target.partition_keys, strict=True)
        if not same_type(old.type, new.type)
    ]
    if actual.table_type != target.table_type:
        changes.append(Change("table type", actual.table_type, target.table_type))
    for what in ("location", *CLASSES, "buckets"):
        old, new = _aspect(actual.storage, what), _aspect(target.storage, what)
        if old != new:
            changes.append(Change(what.replace("_", " "), old, new))
    serde = _map_changes("serde parameter", actual.storage.serde_parameters, target.storage.serde_parameters)
    return changes + serde + _map_changes("parameter", actual.parameters, target.parameters)


def _aspect(storage: StorageDescriptor, what: str) -> str | None:
    if what != "buckets":
        found = getattr(storage, what)
        return found if found is None else str(found)
    return f"{', '.join(storage.bucket_columns)} into {storage.num_buckets}" if storage.bucket_columns else None


def _column_changes(actual: tuple[Column, ...], target: tuple[Column, ...]) -> list[Change]:
    old = {column.name.lower(): column for column in actual}
    new = {column.name.lower(): column for column in target}
    changes = [Change(f"column {column.name}", column.type, None) for name, column in old.items() if name not in new]
    for name, column in new.items():
        before = old.get(name)
        if before is None:
            changes.append(Change(f"column {column.name}", None, column.type))
        elif not same_type(before.type, column.type):
            changes.append(Change(f"column {column.name}", before.type, column.type))
        elif (before.comment or "") != (column.comment or ""):
            changes.append(Change(f"comment of column {column.name}", before.comment or "", column.comment))
    if [name for name in old if name in new] != [name for name in new if name in old]:
        changes.append(Change("column order", ", ".join(old), ", ".join(new)))
    return changes


def _map_changes(what: str, actual: Mapping[str, str], target: Mapping[str, str]) -> list[Change]:
    keys = [*target, *(key for key in actual if key not in target)]
    return [
        Change(f"{what} {key}", actual.get(key), target.get(key)) for key in keys if actual.get(key) != target.get(key)
    ]


def partition_steps(
    wanted: TableEntry,
    changes: PartitionChanges,
    layout: EntryLayout,
    registered: Mapping[tuple[str, ...], str | None],
    *,
    touch: bool = False,
) -> list[Step]:
    """What has to be done about partitions. `touch`: the time of those that were written is renewed in any case.

    `registered`: values → location of the partitions that the entry has; all of them when `changes` is complete, else
    those of the paths in question. A location of None is not looked at.
    """
    targets = [layout.target(path) for path in sorted(changes.live)]
    exact = {target.values for target in targets}
    # Another spelling of the same value stands for a partition, unless that spelling is a partition of its own.
    spelt = {layout.known_as(values): values for values in registered if values not in exact}

    def entry_of(target: PartitionTarget) -> tuple[str, ...] | None:
        return target.values if target.values in registered else spelt.get(layout.known_as(target.values))

    found = {target.values: entry_of(target) for target in targets}
    new = [target for target in targets if found[target.values] is None]
    files = changes.files([target.path for target in new])
    adds = [replace(target, files=known) for target in new if (known := files[target.path]) is not None]
    moves, touched = [], []
    for target in targets:
        if (values := found[target.values]) is None:
            continue
        known_as = replace(target, values=values, name=partition_name(layout.keys, values))
        if (location := registered[values]) is not None and not registered_there(location, target.location):
            moves.append(known_as)
        elif touch and not changes.complete:
            touched.append(known_as)
    if changes.complete:
        kept = set(found.values())
        dropped = sorted(values for values in registered if values not in kept)
    else:
        emptied = {layout.target(path).values for path in changes.emptied}
        means = {layout.known_as(values) for values in emptied}
        dropped = sorted(v for v in registered if v not in exact and (v in emptied or layout.known_as(v) in means))
    kinds = ((AddPartitions, adds), (MovePartitions, moves), (TouchPartitions, touched))
    steps: list[Step] = [kind(wanted, tuple(some)) for kind, some in kinds if some]
    if dropped:
        steps.append(DropPartitions(wanted, tuple(partition_name(layout.keys, values) for values in dropped)))
    return steps


def fitting(changes: PartitionChanges, layout: EntryLayout) -> tuple[PartitionChanges, list[str]]:
    """The changes without the partitions that no entry can have, and why it can't, each by name."""
    refused: list[str] = []
    fits: set[str] = set()
    for path in sorted(changes.live | changes.emptied):
        try:
            why = layout.misfit(layout.target(path))
        except FormatError as error:
            why = f"{error.message} ({error.hint})"
        if why is None:
            fits.add(path)
        elif path in changes.live:
            refused.append(why)
    return replace(changes, live=changes.live & fits, emptied=changes.emptied & fits), refused


def distinct(
    changes: PartitionChanges,
    layout: EntryLayout,
    registered: Mapping[tuple[str, ...], str | None],
    is_live: Callable[[str], bool],
) -> tuple[PartitionChanges, list[str]]:
    """The changes with one folder for the values of a partition, and the others by name.

    Two folders may have the same values (`2024/01` and `2024-01`, for example): one entry can't represent both. The one
    that is registered stays, else the first is. `is_live`: whether a folder is a partition with rows.
    """
    folders: dict[tuple[str, ...], str] = {}
    others: set[str] = set()
    refused: list[str] = []
    for path in sorted(changes.live | changes.emptied):
        values = layout.target(path).values
        if values not in folders:
            there = path_below(registered.get(values), layout.base_path)
            is_other = there is not None and there != path and layout.values(there) == values
            folders[values] = there if there is not None and is_other and is_live(there) else path
        holder = folders[values]
        if holder == path:
            continue
        if holder in changes.emptied and path in changes.live:
            folders[values] = path
            others.add(holder)
            continue
        others.add(path)
        if path in changes.live:
            refused.append(
                f"partition paths {holder!r} and {path!r} have the same values {', '.join(values)}, one entry can't "
                f"have both: {holder!r} is registered"
            )
    return replace(changes, live=changes.live - others, emptied=changes.emptied - others), refused


def alike(names: Iterable[str], partitions: Sequence[PartitionTarget]) -> list[PartitionTarget]:
    """Those whose name differs from another of `names` in case or blanks at the end only: not every metastore's
    database distinguishes them."""
    counts = Counter(map(_compared, set(names)))
    return [partition for partition in partitions if counts[_compared(partition.name)] > 1]


def _compared(name: str) -> str:
    return name.rstrip(" ").casefold()


def hidden_by(target: PartitionTarget, other: str) -> str:
    """Why a metastore does not hold a partition that it takes for another."""
    return f"partition {target.name!r}: the metastore's database does not distinguish it from {other!r}"


def refusals(actual: TableEntry, target: TableEntry) -> str | None:
    """What a metastore with its default settings will refuse of an alteration; None: nothing."""
    names = refused(actual.storage.columns, target.storage.columns)
    if not names:
        return None
    changes = "; ".join(map(str, column_changes(actual.storage.columns, target.storage.columns)))
    return (
        f"{actual.full_name}: {changes}. A metastore refuses that by default, at the place of {', '.join(names)}; it "
        f"takes it with {SETTING}"
    )
