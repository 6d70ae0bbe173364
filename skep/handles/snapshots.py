"""The snapshots of tables that were opened last: what one statement has read of a table serves the next one, too."""

from __future__ import annotations

from typing import Final

from skep.base.shared_calls import Recent, SharedCalls
from skep_format.options import Options
from skep_table.table import HudiTable

_MOST: Final = 64


class Snapshots:
    """By location and options. Threads share it."""

    def __init__(self) -> None:
        self._openings: SharedCalls[HudiTable] = SharedCalls()
        self._known: Recent[tuple[str, Options], HudiTable] = Recent(_MOST)

    def newest(self, location: str, options: Options) -> HudiTable:
        """A table as it is now: the snapshot that was taken before where its timeline is the same, listed again, else
        a new one. Raises as `HudiTable.open`."""
        key = location, options

        def newest() -> HudiTable:
            known = self._known.get(key)
            return self._known.put(key, HudiTable.open(location, options) if known is None else known.newest())

        return self._openings.get(key, newest)
