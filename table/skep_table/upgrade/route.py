"""The way from one version to another, checked, and the timeline that a table has when it has arrived."""

from __future__ import annotations

from dataclasses import dataclass

from skep_format.distribution import OLDER_TABLE_VERSIONS
from skep_format.errors import InputError
from skep_format.table_config import TableConfig
from skep_format.timeline.layout import TimelineLayout
from skep_format.versions import TableFormat, format_of, known_versions
from skep_table.table import HudiTable
from skep_table.upgrade.settings import settings_after


@dataclass(frozen=True, slots=True)
class VersionRoute:
    """From the settings of a table to those of another version. `moves`: the timeline has another layout there."""

    before: TableConfig
    after: TableConfig
    layout: TimelineLayout
    moves: bool

    @property
    def target(self) -> TableFormat:
        """The format of the new version."""
        return format_of(self.after)


def route_to(table: HudiTable, version: int) -> VersionRoute:
    """From a version that skep writes to another one. InputError for one that it does not write."""
    check_target(table, version)
    versions = known_versions()
    here, there = versions.index(table.config.version), versions.index(version)
    passed = versions[here + 1 : there + 1] if there > here else versions[there:here][::-1]
    after = settings_after(table.config, passed, table.options)
    layout = format_of(after).timeline_layout(after)
    return VersionRoute(table.config, after, layout, layout.folder != table.layout.folder)


def check_target(table: HudiTable, version: int) -> None:
    """InputError for a version that skep does not write."""
    versions = known_versions()
    if version not in versions:
        raise InputError(
            f"table {table.config.name} can't become version {version}",
            hint="Hudi before 1.0 downgrades to versions before 6" if version in OLDER_TABLE_VERSIONS else None,
            option="to",
            found=version,
            expected=f"one of {', '.join(map(str, versions))}",
        )


def other_layouts(table: HudiTable) -> list[TimelineLayout]:
    """The timelines that the table would have in other versions: where an interrupted change leaves files."""
    routes = [route_to(table, version) for version in known_versions()]
    return list({route.layout.folder: route.layout for route in routes if route.moves}.values())
