"""Tables at paths, without a metastore, as `skep write` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skep.base.schemas import SchemaLike
from skep.handles.destination import described_at
from skep.handles.table import Table


def create_at(path: str, schema: SchemaLike, options: Mapping[str, object], **spec: Any) -> Table:
    """A new table at `path`; `spec` is what `Lake.create_table` takes."""
    with described_at(path, schema, options=options, **spec) as table:
        return table
