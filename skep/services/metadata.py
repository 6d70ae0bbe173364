"""A table's metadata table as methods of the table: shown, compared with the files, rebuilt, dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skep.base.arguments import checks_arguments
from skep.base.keywords import takes_options
from skep.base.specs import Text, texts
from skep.services.handle import TableHandle

if TYPE_CHECKING:
    from skep_table.services.metadata.indexing import MetadataStatistics, MetadataSummary, Rebuilt, TableIndex
    from skep_table.services.metadata_check import MetadataCheck


@checks_arguments
class MetadataMethods(TableHandle):
    """Mixed into `Table`; see docs/metadata.md."""

    def show_metadata(self) -> MetadataSummary:
        """The partitions of the metadata table, and how far it has come."""
        from skep_table.services.metadata.indexing import show_metadata_table

        return show_metadata_table(self._hudi.reload())

    def metadata_statistics(self) -> MetadataStatistics:
        """How many records each index has, and how many files each partition of the table; reads them all."""
        from skep_table.services.metadata.indexing import metadata_statistics

        return metadata_statistics(self._hudi.reload())

    def validate_metadata(self, *, indexes: Text | None = None) -> MetadataCheck:
        """Compares the metadata table, or these partitions of it, with the files. Changes nothing."""
        from skep_table.services.metadata_check import check_metadata_table

        return check_metadata_table(self._locked({}).reload(), None if indexes is None else texts(indexes))

    @takes_options
    def rebuild_metadata(self, **options: object) -> Rebuilt:
        """Makes the metadata table again, or for the first time."""
        from skep_table.services.metadata.indexing import rebuild_metadata_table

        return rebuild_metadata_table(self._locked(options))

    def indexes(self) -> list[TableIndex]:
        """The indexes that the metadata table has, by name; see docs/metadata.md."""
        from skep_table.services.metadata.indexing import indexes_of

        return indexes_of(self._hudi.reload())

    @takes_options
    def build_index(
        self,
        kind: str,
        *,
        name: str | None = None,
        columns: Text | None = None,
        expression: Mapping[str, str] | None = None,
        **options: object,
    ) -> TableIndex:
        """Makes an index of a kind: column_stats, partition_stats, bloom_filters, record_index or secondary_index.

        A secondary one is of one column, by whose name it goes where `name` is left out; column statistics are of
        these columns alone. `expression` has the options of CREATE INDEX for one over an expression, of the kind
        column_stats or bloom_filters: `{"expr": "from_unixtime", "format": "yyyy-MM-dd"}`. EntryExistsError where the
        table has that index.
        """
        from skep_table.services.metadata.indexing import build_index, index_named, indexes_of

        definition = index_named(kind, name, () if columns is None else texts(columns), expression)
        made = build_index(self._locked(options), definition)
        return next(each for each in indexes_of(made) if each.partition == definition.name)

    @takes_options
    def drop_index(self, name: str, **options: object) -> tuple[str, ...]:
        """Drops an index, and with the record index secondary ones; returns the names of what was dropped."""
        from skep_table.services.metadata.indexing import drop_index

        return drop_index(self._locked(options), name)

    @takes_options
    def drop_metadata(self, *, index: Text | None = None, **options: object) -> tuple[str, ...]:
        """Drops the metadata table, or only indexes of it; returns the names of what was dropped."""
        from skep_table.services.metadata.indexing import drop_metadata

        return drop_metadata(self._locked(options), None if index is None else texts(index))
