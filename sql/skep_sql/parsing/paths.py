"""Files, and Hudi tables without a name, that a query names by format and path: parquet.`/data/new`."""

from __future__ import annotations

import re
from typing import Final

from skep_sql.parsing.statements import Node

HUDI: Final = "hudi"
FORMATS: Final = (HUDI, "parquet", "orc", "avro", "json", "csv", "text", "binaryfile")
_NAME: Final = re.compile(r"\w+")


def path_of(node: Node) -> tuple[str, str] | None:
    """What `path_in` finds in the name of a query's table."""
    return None if node.catalog else path_in(node.db, node.name)


def path_in(format: str, path: str) -> tuple[str, str] | None:
    """Format, in lower case, and path where the two parts of a name are these.

    None for a name of a catalog, which has letters, digits and `_` only.
    """
    kind = format.lower()
    return None if kind not in FORMATS or _NAME.fullmatch(path) else (kind, path)
