"""The queries of the golden cases as read requests of skep's."""

from __future__ import annotations

from typing import Any

import golden_archives as archives
import golden_faults as faults

from skep_format.options import Options
from skep_table.query import ReadRequest

BOOTSTRAP_BASE_PATH = "hoodie.bootstrap.base.path"


def asked(case: archives.Case, query: archives.Query, **more: Any) -> ReadRequest:
    """The read request for a query. Snapshots taken between operations become time travel to that moment."""
    request: dict[str, Any] = {"where": query.where, **more}
    if (as_of := faults.moment_of(case, query)) is not None:
        request["as_of"] = as_of
    options = dict(query.options)
    if (case.folder / "source").is_dir():
        # The bootstrap case names its source by the path it had where it was written.
        options[BOOTSTRAP_BASE_PATH] = str(case.folder / "source")
    return ReadRequest.of(Options(options), **request)
