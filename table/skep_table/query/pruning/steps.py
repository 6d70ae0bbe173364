"""What each step of planning a read left over, for explanations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from skep_format.names import FileGroupId
from skep_table.view import FileSlice


@dataclass(frozen=True, slots=True)
class PruningStep:
    """After the step `by`: how many file slices are left, of how many partitions.

    `logs_only` is the number of slices among them of which only the log files are left.
    """

    by: str
    slices: int
    partitions: int
    logs_only: int = 0


@dataclass(slots=True)
class Steps:
    """Collects the steps of one plan. `all_slices` are the slices of the query without its filter, by partition."""

    all_slices: Mapping[str, Sequence[FileSlice]] = field(default_factory=dict)
    found: list[PruningStep] = field(default_factory=list)

    def begin(self, all_slices: Mapping[str, Sequence[FileSlice]]) -> None:
        """Begins again: a plan is rebuilt where files were cleaned meanwhile."""
        self.all_slices = all_slices
        self.found = []
        self.left_partitions("in the table", all_slices)

    def left_partitions(self, by: str, partitions: Collection[str]) -> None:
        """A step that left these partitions, before their files were listed."""
        slices = sum(len(self.all_slices.get(path, ())) for path in partitions)
        self.found.append(PruningStep(by, slices, len(partitions)))

    def left_groups(self, by: str, groups: Collection[FileGroupId]) -> None:
        """A step that left these file groups, before files were listed."""
        slices = sum(slice_.group in groups for each in self.all_slices.values() for slice_ in each)
        self.found.append(PruningStep(by, slices, len({group.partition_path for group in groups})))

    def left_slices(self, by: str, slices: Sequence[FileSlice]) -> None:
        """A step that left these file slices."""
        logs_only = sum(slice_.base_file is None for slice_ in slices)
        self.found.append(PruningStep(by, len(slices), len({each.partition_path for each in slices}), logs_only))
