"""What a change of version would do, step by step, and what is lost by it. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from skep_format.names import META_FOLDER
from skep_format.table_config import TableConfig
from skep_format.timeline.archive import archive_files
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_format.versions import format_of
from skep_table.commit.concurrency.changes import is_clustering
from skep_table.commit.parts.metadata_table import older_metadata
from skep_table.metadata_write.own import has_metadata_table
from skep_table.table import HudiTable
from skep_table.upgrade.change import leftovers
from skep_table.upgrade.instants import instant_files
from skep_table.upgrade.older import left_by_older, settings_when_written
from skep_table.upgrade.route import (
    PLANS,
    VersionRoute,
    check_old_logs,
    check_settings,
    check_target,
    route_to,
    slices_with_logs,
)
from skep_table.upgrade.settings import changes_between


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
    check_target(table, to)
    before, steps = table.config.version, list[UpgradeStep]()
    if not table.format.is_written:
        after = settings_when_written(table)
        steps = [*_rolling_back(table), *_becoming_written(table, after)]
        table = table.with_config(after)
    route = route_to(table, to)
    if route.after.version != table.config.version:
        check_settings(table, route.target)
        check_old_logs(table, route.target)
        steps += [] if steps else _rolling_back(table)
        steps += [*_settling(table), *_moving(table, route), *_settings(route.before, route.after)]
        steps += _lost(table, route)
    elif before == to:
        left = leftovers(table)
        steps = [UpgradeStep("delete", f"{len(left)} files that an interrupted change left")] if left else []
    return VersionPlan(before, to, tuple(steps))


def _becoming_written(table: HudiTable, after: TableConfig) -> list[UpgradeStep]:
    archives, copies = len(archive_files(table.storage, META_FOLDER)), left_by_older(table)
    found = _settings(table.config, after)
    if archives:
        found.append(UpgradeStep("move", f"{archives} archive files to {table.layout.archive_folder}"))
    if copies:
        found.append(UpgradeStep("delete", f"{len(copies)} files that only older releases read"))
    found.append(UpgradeStep("lost", f"writers with Hudi before {format_of(after).first_release}"))
    if older_metadata(table):
        found.append(UpgradeStep("lost", f"the metadata table ({', '.join(older_metadata(table))}): it is rebuilt"))
    return found


def _rolling_back(table: HudiTable) -> list[UpgradeStep]:
    pending = [i for i in table.timeline.pending().instants if i.action in WRITE_ACTIONS and i.action not in PLANS]
    writes = [i for i in pending if not is_clustering(table, i)]
    return [UpgradeStep("roll back", f"{i.action.value} {i.requested_time}, if its writer is dead") for i in writes]


def _settling(table: HudiTable) -> list[UpgradeStep]:
    plans = [i for i in table.timeline.pending().instants if i.action in PLANS]
    found = [UpgradeStep("carry out", f"{i.action.value} {i.requested_time}") for i in plans]
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


def _settings(before: TableConfig, after: TableConfig) -> list[UpgradeStep]:
    changes = changes_between(before, after)
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
