"""Where the options are registered that reading does not need: imported for the first key that is not known yet.

Their import takes a fifth of a second.
"""

from __future__ import annotations

from skep_format.options import REGISTRY

REGISTRY.add_later(
    "skep.handles.writing",
    "skep.handles.lake_tables",
    "skep_table.services.automatic",
    "skep_table.upgrade",
    "skep_table.write.bootstrap.options",
    "skep_sync.feed",
)
REGISTRY.add_later("skep_stream.lag")
