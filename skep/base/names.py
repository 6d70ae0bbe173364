"""Names of tables as users write them, and how they are distinguished from paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from skep_format.errors import InputError

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
        parts = parts_of(text)
        if len(parts) > 2 or not all(map(_PART.fullmatch, parts)):
            raise InputError(
                f"{text!r} is no name of a table",
                hint="write `table` or `database.table`, each of letters, digits and _, a digit not first",
                found=text,
                expected="database.table",
            )
        *database, name = (part.lower() for part in parts)
        return cls(database[0] if database else default_database.lower(), name)


def parts_of(text: str) -> list[str]:
    """The parts of a name as users write it, without backticks."""
    return [part.strip().strip("`") for part in text.split(".")]


def is_path(text: str) -> bool:
    """Whether a table is given by its path rather than by its name in the metastore.

    A path has a slash or a colon (`./orders`, `s3://…`), is `.` or `..`, or can be no name (`my-orders`); so is a word
    that could be either (`orders`) where a Hudi table lies in a folder of that name here. Else it is a name.
    """
    parts = [part.strip("`") for part in text.split(".")]
    if "/" in text or ":" in text or len(parts) > 2 or not all(map(_PART.fullmatch, parts)):
        return True
    from skep_format.names import META_FOLDER  # every command would wait for the names of data files

    return (Path(text) / META_FOLDER).is_dir()
