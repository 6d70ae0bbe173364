"""The settings of a session: what SET gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skep_format.errors import InputError, OptionError
from skep_format.options import REGISTRY, Options
from skep_format.schema.policy import SCHEMA_ON_READ
from skep_sql.assign import POLICY_KEY, Policy

OF_STATEMENTS: Final = (
    "hoodie.datasource.write.operation",
    "hoodie.spark.sql.insert.into.operation",
    "hoodie.sql.bulk.insert.enable",
    "hoodie.sql.insert.mode",
    "hoodie.datasource.overwrite.mode",
    SCHEMA_ON_READ.key,
)
"""Settings of statements, which are none of the options of a write."""

_OF_LAKES: Final = ("parquet.crypto.", "parquet.encryption.", "skep.encryption.")
_OF_ENGINES: Final = "spark.sql."
_NOT_OF_ENGINES: Final = (POLICY_KEY, "spark.sql.sources.partitionoverwritemode")


class SessionSettings:
    """Keys and values of one session, keys of `hoodie.` and of Spark alike."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._spelt: dict[str, str] = {}  # key as above → as it was given

    def get(self, key: str) -> str | None:
        """None for a key that was not set."""
        return self._values.get(key.lower()) if key.lower() in self._values else None

    def set(self, key: str, value: str) -> None:
        """Until the session ends or the key is reset.

        Hudi's options are checked: OptionError for a value that one does not take, a warning of one that is misspelt.
        """
        if key.lower().startswith(_OF_LAKES):
            raise OptionError(
                f"{key} is no setting of a session",
                hint="connect(options=…), the settings' file or --option have the keys of encrypted tables",
                option=key,
            )
        is_option = key.startswith("hoodie.") and key not in OF_STATEMENTS
        if is_option and (REGISTRY.find(key) is not None or REGISTRY.nearest(key) is not None):
            Options({key: value}).check()
        kept = key.lower() if not key.startswith("hoodie.") else key
        self._values[kept], self._spelt[kept] = value, key

    def reset(self, key: str | None = None) -> None:
        """One key, or all."""
        if key is None:
            self._values.clear()
        else:
            self._values.pop(key, None)
            self._values.pop(key.lower(), None)

    def items(self) -> list[tuple[str, str]]:
        """Sorted by key."""
        return sorted(self._values.items())

    @property
    def hoodie(self) -> Mapping[str, str]:
        """The options that each write of the session takes."""
        return {
            key: value for key, value in self._values.items() if key.startswith("hoodie.") and key not in OF_STATEMENTS
        }

    @property
    def engine(self) -> Mapping[str, str]:
        """What Spark's session is to have while it plans a query."""
        return {
            self._spelt[key]: value
            for key, value in self._values.items()
            if key.startswith(_OF_ENGINES) and key not in _NOT_OF_ENGINES
        }

    @property
    def policy(self) -> Policy:
        """How values are fitted to columns. InputError for an unknown policy."""
        text = (self.get(POLICY_KEY) or "ANSI").upper()
        if text not in Policy.__members__:
            raise InputError(
                f"spark.sql.storeAssignmentPolicy={text}", found=text, expected=", ".join(Policy.__members__)
            )
        return Policy(text)
