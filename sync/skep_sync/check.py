"""Where engines would disagree about a table: its entries against schema, partitions, files and timeline.

Hive, Trino and Presto read the entry's columns, Spark the schema in its parameters, Hive also the columns of each
partition; all of them the partitions' locations. Readers that list by the metadata table see other files than those
that list folders when the two differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entities import TableEntry
from skep_sync.manifest import planning
from skep_sync.options import SyncOptions
from skep_sync.planning.changes import TimelineState
from skep_sync.planning.descriptors import Drifted
from skep_sync.planning.plan import marker_of
from skep_sync.planning.steps import (
    AddDatabase,
    AddPartitions,
    AlterEntry,
    Change,
    ChangeIndexes,
    CreateEntry,
    DropEntry,
    DropPartitions,
    MovePartitions,
    Step,
    SyncPlan,
    some_partitions,
)
from skep_table.table import HudiTable
from skep_table.view import FileView

_ALL = ("Hive", "Trino", "Presto", "Spark")
_HIVE_LIKE = ("Hive", "Trino", "Presto")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing on which engines would disagree with the table, or with one another."""

    entry: str
    aspect: str
    what: str
    engines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.entry}: {self.aspect}: {self.what} [{', '.join(self.engines)}]"

    def to_json(self) -> dict[str, Any]:
        return {"entry": self.entry, "aspect": self.aspect, "what": self.what, "engines": list(self.engines)}


@dataclass(frozen=True, slots=True)
class CheckReport:
    """`plan` is what a repair would do; files that the metadata table and the folders differ in it can't mend."""

    plan: SyncPlan
    findings: tuple[Disagreement, ...]

    def __bool__(self) -> bool:
        """Whether there is drift."""
        return bool(self.findings)

    def __str__(self) -> str:
        if not self.findings:
            return f"{self.plan.full_name}: in sync"
        return "\n".join([f"{self.plan.full_name}: drift", *(f"  {finding}" for finding in self.findings)])

    def with_findings(self, more: Iterable[Disagreement]) -> CheckReport:
        """With more findings after its own."""
        return replace(self, findings=(*self.findings, *more))

    def to_json(self) -> dict[str, Any]:
        return {**self.plan.to_json(), "findings": [finding.to_json() for finding in self.findings]}


def check_table(
    table: HudiTable,
    metastore: EntryCatalog,
    database: str | None = None,
    name: str | None = None,
    options: SyncOptions | Mapping[str, object] | None = None,
) -> CheckReport:
    """Compares everything, all partitions included; changes nothing."""
    with planning(table, metastore, database, name, options, full=True) as planner:
        plan = planner.plan()
        findings = [finding for step in plan.steps for finding in _of_step(step)]
        findings += [
            Disagreement(plan.full_name, "refused", f"can't be registered: {what}", _ALL) for what in plan.refused
        ]
        for entry in plan.seen:
            actual = metastore.find_table(plan.database, entry)
            if actual is not None:
                findings += _of_timeline(actual, TimelineState.of(table))
                findings += _of_partitions(actual, plan.drifted.get(entry, ()))
        findings += _of_files(table, plan.full_name)
    return CheckReport(plan, tuple(findings))


def _of_step(step: Step) -> Iterator[Disagreement]:
    match step:
        case AddDatabase(database):
            yield Disagreement(database, "database", "missing", _ALL)
        case CreateEntry(table):
            yield Disagreement(table.full_name, "entry", "missing", _ALL)
        case DropEntry(table):
            yield Disagreement(table.full_name, "entry", "a view of an earlier strategy", _ALL)
        case AddPartitions(table, partitions):
            missing = some_partitions([partition.name for partition in partitions])
            yield Disagreement(table.full_name, "partitions", f"missing: {missing}", _ALL)
        case MovePartitions(table, partitions):
            elsewhere = some_partitions([partition.name for partition in partitions])
            yield Disagreement(table.full_name, "locations", f"not the table's: {elsewhere}", _ALL)
        case DropPartitions(table, names):
            stale = some_partitions(list(names))
            yield Disagreement(table.full_name, "partitions", f"no longer in the table: {stale}", _ALL)
        case ChangeIndexes():
            yield Disagreement(step.table.full_name, "partition indexes", step.summary(), ("Athena",))
        case AlterEntry(table=table, changes=changes):
            yield from (_of_change(table, change) for change in changes if "last_commit_" not in change.what)


def _of_change(table: TableEntry, change: Change) -> Disagreement:
    if change.what.startswith("parameter spark.sql.sources"):
        return Disagreement(table.full_name, "Spark schema", str(change), ("Spark",))
    if "column" in change.what or "partition key" in change.what:
        return Disagreement(table.full_name, "columns", str(change), _HIVE_LIKE)
    return Disagreement(table.full_name, "settings", str(change), _ALL)


def _of_timeline(actual: TableEntry, history: TimelineState) -> Iterator[Disagreement]:
    marker, point = marker_of(actual), history.point
    if marker == point:
        return
    if marker is None or point is None:
        what = "was never synced" if marker is None else f"synced to {marker.requested_time}; the table has no commit"
    elif not history.knows(marker):
        what = f"synced to {marker.requested_time}, which is not on the active timeline"
    else:
        what = f"{len(history.after(marker))} commits behind {point.requested_time}"
    yield Disagreement(actual.full_name, "timeline", what, _ALL)


def _of_partitions(actual: TableEntry, drifted: Sequence[Drifted]) -> Iterator[Disagreement]:
    """The partitions' own descriptors, whatever the policy is by which a sync takes columns to them."""
    for aspect in dict.fromkeys(aspect for one in drifted for aspect in one.aspects):
        others = some_partitions([one.name for one in drifted if aspect in one.aspects])
        engines = _HIVE_LIKE if aspect == "input format" else ("Hive",)
        yield Disagreement(actual.full_name, f"partition {aspect}", f"not the table's: {others}", engines)


def _of_files(table: HudiTable, name: str) -> Iterator[Disagreement]:
    """The metadata table against the folders."""
    if table.metadata_table() is None or table.has_external_files:
        return
    listed, lying = table.view(metadata=True), table.view(metadata=False)
    differing = [
        path
        for path in sorted({*listed.partitions(), *lying.partitions()})
        if _files(listed, path) != _files(lying, path)
    ]
    if differing:
        yield Disagreement(
            name,
            "files",
            f"the metadata table and the folders list other files in {some_partitions(differing)}",
            ("readers by the metadata table", "readers by folders"),
        )


def _files(view: FileView, path: str) -> set[tuple[str, int]]:
    """Files of the slices that are read: leftovers of failed writes don't count."""
    slices = view.slices(path)
    bases = {(s.base_file.path, s.base_file.size_bytes) for s in slices if s.base_file is not None}
    return bases | {(log.path, log.size_bytes) for s in slices for log in s.log_files}
