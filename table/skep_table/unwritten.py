"""What reads of a snapshot see beside its files: see `query/unwritten.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Unwritten:
    """`changes` that no file has, and instead of the files `held`, all rows of these."""

    changes: pa.Table | None = None
    held: pa.Table | None = None
