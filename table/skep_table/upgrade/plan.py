"""What a change of version would do, step by step, and what is lost by it. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from skep_format.timeline.instant import Action
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_table.commit.concurrency.changes import is_clustering
from skep_table.metadata_write import has_metadata_table
from skep_table.table import HudiTable
from skep_table.upgrade.change import leftovers
from skep_table.upgrade.instants import instant_files
from skep_table.upgrade.refusals import check_old_logs, check_settings, slices_with_logs
from skep_table.upgrade.route import VersionRoute, route_to
from skep_table.upgrade.settings import changes_between

_PLANS = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN)


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """One step; `what` it would do. A step `lost` names what the table does not have afterwards."""

    step: str
    what: str


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """The steps from one version to another; none where the table has the version, and nothing is left to delete."""

    before: int
    after: int
    steps: tuple[UpgradeStep, ...]


def plan_version_change(table: HudiTable, to: int) -> VersionPlan:
    """The plan for the table as it is now. Raises as the change would for what settings and storage refuse."""
    table = table.reload()
    route = route_to(table, to)
    if route.after.version == table.config.version:
        left = leftovers(table)
        steps = [UpgradeStep("delete", f"{len(left)} files that an interrupted change left")] if left else []
        return VersionPlan(table.config.version, to, tuple(steps))
    check_settings(table, route.target)
    check_old_logs(table, route.target)
    steps = [*_settling(table), *_moving(table, route), *_settings(route), *_lost(table, route)]
    return VersionPlan(table.config.version, to, tuple(steps))


def _settling(table: HudiTable) -> list[UpgradeStep]:
    pending = table.timeline.pending().instants
    plans = [i for i in pending if i.action in _PLANS]
    writes = [i for i in pending if i.action in WRITE_ACTIONS and i not in plans and not is_clustering(table, i)]
    found = [UpgradeStep("roll back", f"{i.action.value} {i.requested_time}, if its writer is dead") for i in writes]
    found += [UpgradeStep("carry out", f"{i.action.value} {i.requested_time}") for i in plans]
    slices = sum(1 for _ in slices_with_logs(table))
    if slices:
        found.append(UpgradeStep("compact", f"the log files of {slices} file slices"))
    return found


def _moving(table: HudiTable, route: VersionRoute) -> list[UpgradeStep]:
    if not route.moves:
        return []
    files, archived = len(instant_files(table, table.layout)), len(table.timeline.archived())
    return [
        UpgradeStep("copy", f"{files} instant files from {table.layout.folder} to {route.layout.folder}"),
        UpgradeStep("copy", f"{archived} archived instants to {route.layout.archive_folder}"),
        UpgradeStep("delete", f"these instants in {table.layout.folder} and {table.layout.archive_folder}"),
    ]


def _settings(route: VersionRoute) -> list[UpgradeStep]:
    changes = changes_between(route.before, route.after)
    return [
        UpgradeStep("set", f"{key}={text}") if text is not None else UpgradeStep("drop", key)
        for key, text in sorted(changes.items())
    ]


def _lost(table: HudiTable, route: VersionRoute) -> list[UpgradeStep]:
    found = []
    if route.after.version > route.before.version:
        release = route.target.first_release
        found.append(f"readers and writers with Hudi before {release}, those in Hive, Presto and Trino among them")
    if has_metadata_table(table.config):
        partitions = ", ".join(table.config.metadata_partitions)
        found.append(f"the metadata table ({partitions}): it is rebuilt")
    if table.layout.has_completion_times and not route.layout.has_completion_times:
        found.append("completion times: ranges of incremental queries are of requested times")
        if table.config.is_mor:
            found.append("time travel to before this change, for readers of Hudi 0.15: log files have other names")
    return [UpgradeStep("lost", what) for what in found]
