"""A quick start: Arrow without pandas, whose import would take a quarter of the time of a query or a small round."""

from __future__ import annotations

import sys


class _NoPandas:
    """Finder of modules that has no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004 - the protocol's
        """ModuleNotFoundError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def arrow_alone() -> None:
    """Arrow looks for pandas at the first value that it converts; now it finds none.

    It looks again where it is to make a frame, as a Spark session that starts lets it do.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        import pyarrow

        pyarrow.scalar(None)
    finally:
        sys.meta_path.remove(_NoPandas)
