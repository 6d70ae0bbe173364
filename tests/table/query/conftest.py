"""A storage that counts what is opened, so that tests can check which files a query needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from skep_format.storage import LocalStorage


class CountingStorage(LocalStorage):
    """Local files; `opened` are the data files whose rows were read, `footers` those of which a part was."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.opened: list[str] = []
        self.footers: list[str] = []

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        if not path.startswith(".hoodie/"):
            self.opened.append(path)
        return super().open_input(path, size=size)

    def read_suffix(self, path: str, length: int) -> bytes:
        if not path.startswith(".hoodie/"):
            self.footers.append(path)
        return super().read_suffix(path, length)


@pytest.fixture
def counting(golden: Path) -> Callable[[str, str], CountingStorage]:
    """The counting storage of a golden table, by Hudi version and case."""
    return lambda version, case: CountingStorage(str(golden / version / case / "table"))
