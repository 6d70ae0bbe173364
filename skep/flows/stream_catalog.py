"""The metastore of a stream: that of Hudi's sync options, else that of the settings."""

from __future__ import annotations

from dataclasses import dataclass

from skep_format.errors import OptionError
from skep_format.options import Options
from skep_format.schema.types import Schema
from skep_sync.options import URIS, main_address


@dataclass(frozen=True, slots=True)
class MetastoreColumns:
    """Connects for each call: a stream goes on for long, and its schemas are read once or twice in a round."""

    options: Options

    def schema(self, database: str, table: str) -> Schema:
        """See `skep_stream.protocols.MetastoreCatalog`. OptionError where no metastore is named."""
        from skep_catalog.addresses import catalog_at
        from skep_catalog.stated_columns import stated_schema

        with catalog_at(self._address(), self.options) as client:
            return stated_schema(client.table(database, table))

    def _address(self) -> str:
        from skep.base.config import load

        address = main_address(self.options) or load().settings.metastore
        if not address:
            raise OptionError(f"columns of a table in the metastore need {URIS.key}", option=URIS.key)
        return address
