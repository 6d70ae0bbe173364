"""Catalogs by their addresses: a Hive Metastore, or AWS Glue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skep_catalog.catalogs import EntryCatalog

GLUE = "glue:"
"""What an address of AWS Glue begins with."""


def is_glue(uri: str | None) -> bool:
    """Whether an address is one of AWS Glue."""
    return uri is not None and uri.strip().lower().startswith(GLUE)


def is_of_glue(catalog: EntryCatalog) -> bool:
    """Whether a client is one of AWS Glue, without a call."""
    from skep_catalog.glue.client import GlueCatalog

    return isinstance(catalog, GlueCatalog)


def catalog_at(uri: str | Sequence[str], settings: Mapping[str, object] | None = None) -> EntryCatalog:
    """The client of the catalog at an address: `thrift://host:port`, or `glue:`. No connection is opened before the
    first call."""
    if isinstance(uri, str) and is_glue(uri):
        from skep_catalog.glue.client import GlueCatalog

        return GlueCatalog.connect(uri, settings)
    from skep_catalog.client import Metastore

    return Metastore.connect(uri, settings)
