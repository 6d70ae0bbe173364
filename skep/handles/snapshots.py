"""The snapshots of tables that were opened last: what one statement has read of a table serves the next one, too."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from skep.base.shared_calls import SharedCalls
from skep_format.options import Options
from skep_table.table import HudiTable

_MOST: Final = 64


class Snapshots:
    """By location and options. Threads share it."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._openings: SharedCalls[HudiTable] = SharedCalls()
        self._known: OrderedDict[tuple[object, ...], HudiTable] = OrderedDict()

    def newest(self, location: str, options: Options) -> HudiTable:
        """A table as it is now: the snapshot that was taken before where its timeline is the same, listed again, else
        a new one. Raises as `HudiTable.open`."""
        key = location, options
        return self._openings.get(key, lambda: self._newest(key, location, options))

    def _newest(self, key: tuple[object, ...], location: str, options: Options) -> HudiTable:
        with self._guard:
            known = self._known.get(key)
        table = HudiTable.open(location, options) if known is None else known.newest()
        with self._guard:
            self._known[key] = table
            self._known.move_to_end(key)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return table
