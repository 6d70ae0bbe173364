"""A table's metadata table as methods of the table: shown, compared with the files, made again, dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.services.runner import Services
from skep.specs import Text, texts
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep_table.services.metadata_admin import MetadataStatistics, MetadataSummary, Rebuilt
    from skep_table.services.metadata_check import MetadataCheck


class MetadataMethods:
    """Mixed into `Table`; see docs/metadata.md."""

    _hudi: HudiTable

    def services(self) -> Services:
        """How the services of this table run."""
        raise NotImplementedError

    def show_metadata(self) -> MetadataSummary:
        """The partitions of the metadata table, and how far it has come."""
        from skep_table.services.metadata_admin import show_metadata_table

        return show_metadata_table(self._hudi.reload())

    def metadata_statistics(self) -> MetadataStatistics:
        """How many records each index has, and how many files each partition of the table; reads them all."""
        from skep_table.services.metadata_admin import metadata_statistics

        return metadata_statistics(self._hudi.reload())

    def validate_metadata(self, *, indexes: Text | None = None) -> MetadataCheck:
        """Compares the metadata table, or these partitions of it, with the files. Changes nothing."""
        from skep_table.services.metadata_check import check_metadata_table

        table = self.services().on(self._hudi).reload()
        return check_metadata_table(table, None if indexes is None else texts(indexes))

    def rebuild_metadata(self, **options: object) -> Rebuilt:
        """Makes the metadata table again, or for the first time."""
        from skep_table.services.metadata_admin import rebuild_metadata_table

        return rebuild_metadata_table(self.services().on(self._hudi.with_options(options)))

    def drop_metadata(self, *, index: Text | None = None, **options: object) -> tuple[str, ...]:
        """Drops the metadata table, or only indexes of it; returns the names of what was dropped."""
        from skep_table.services.metadata_admin import drop_metadata

        table = self.services().on(self._hudi.with_options(options))
        return drop_metadata(table, None if index is None else texts(index))
