"""Names of tables as users write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from skep_table.errors import InputError

_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's full name. Metastores fold names to lower case, so they are in lower case here."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"

    @classmethod
    def parse(cls, text: str, default_database: str) -> TableName:
        """From `table` or `database.table`, backticks allowed. InputError for anything a metastore could not hold."""
        parts = [part.strip().strip("`") for part in text.split(".")]
        if len(parts) > 2 or not all(map(_PART.fullmatch, parts)):
            raise InputError(
                f"{text!r} is no name of a table",
                hint="write `table` or `database.table`, each of letters, digits and _, a digit not first",
                found=text,
                expected="database.table",
            )
        *database, name = (part.lower() for part in parts)
        return cls(database[0] if database else default_database.lower(), name)
