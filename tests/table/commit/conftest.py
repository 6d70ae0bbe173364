"""A storage that fails, or dies, at its nth call; and a small table to write to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_storage import FaultyStorage


@pytest.fixture
def faulty() -> type[FaultyStorage]:
    return FaultyStorage


@pytest.fixture
def rows() -> Callable[..., pa.Table]:
    def make(keys: list[str], ts: int = 1, part: str = "p", **more: Any) -> pa.Table:
        count = len(keys)
        return pa.table(
            {
                "id": pa.array(keys, pa.string()),
                "part": pa.array([part] * count, pa.string()),
                "ts": pa.array([ts] * count, pa.int64()),
                **{name: pa.array(values) for name, values in more.items()},
            }
        )

    return make


def listing(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, with its bytes."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.fixture
def files_of() -> Callable[[Path], dict[str, bytes]]:
    return listing
