"""What the classes of a table's methods have in common: its snapshot, and how services run on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skep.services.runner import Services
from skep_table.table import HudiTable


class TableHandle:
    """The last snapshot that the handle saw, its services, and its sync, None for a table that belongs to no lake."""

    _hudi: HudiTable
    _services: Services
    _sync: Callable[[], Any] | None

    def services(self) -> Services:
        """How services run on this table: where, and under which lock."""
        return self._services

    def sync_changed(self) -> None:
        """Syncs after a rollback or restore. Nothing, for a table that belongs to no lake."""
        if self._sync is not None:
            self._sync()

    def _locked(self, options: Mapping[str, object]) -> HudiTable:
        """With the options, lock and runner of one call."""
        return self._services.on(self._hudi.with_options(options))
