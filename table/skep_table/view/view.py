"""The view of one table at one moment: file groups and slices by partition, read when they are asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId
from skep_table.view.files import FileGroup, FileSlice
from skep_table.view.listing import FolderFilter, Listing
from skep_table.view.slicing import InstantStates, file_groups


class FileView:
    """File groups and slices of a table. Groups that a replace commit replaced are left out unless asked for."""

    def __init__(self, listing: Listing, load_instant_states: Callable[[], InstantStates]) -> None:
        self.listing = listing
        self._load_states = load_instant_states

    @functools.cached_property
    def states(self) -> InstantStates:
        """The states of instants that affect file groups, read once."""
        return self._load_states()

    @property
    def replaced(self) -> Mapping[FileGroupId, InstantTime]:
        """Partition path and file id of each replaced group, with the instant that replaced it."""
        return self.states.replaced

    @property
    def pending_compaction(self) -> Mapping[FileGroupId, InstantTime]:
        """Partition path and file id of each group that awaits compaction, with the compaction's instant."""
        return self.states.pending_compactions

    @property
    def pending_clustering(self) -> Mapping[FileGroupId, InstantTime]:
        """File groups of pending clusterings, with the instant of each."""
        return self.states.pending_clusterings

    def partitions(self, within: FolderFilter | None = None) -> list[str]:
        """All partition paths, sorted; `[""]` for a table that is not partitioned.

        `within`: at least those that it keeps, so that others need not be listed.
        """
        return self.listing.partitions(within)

    def file_groups(self, partition_path: str, *, replaced: bool = False) -> list[FileGroup]:
        """The groups of a partition by file id, with all their committed slices; `replaced` adds replaced ones."""
        groups = file_groups(partition_path, self.listing.files(partition_path), self.states)
        return groups if replaced else [group for group in groups if group.replaced_by is None]

    def slices(self, partition_path: str) -> list[FileSlice]:
        """The slice to read of each live group, merged with the one before where a compaction is pending."""
        return [slice_ for group in self.file_groups(partition_path) if (slice_ := group.latest) is not None]

    def all_slices(self, partition_path: str) -> list[FileSlice]:
        """Every committed slice of every live group, as it lies there."""
        return [slice_ for group in self.file_groups(partition_path) for slice_ in group.slices]
