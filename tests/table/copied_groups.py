"""The row groups that are copied as bytes into new base files while a test writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from skep_format.basefile import BaseFileWriter, OpenBaseFile


@contextmanager
def copied_groups() -> Iterator[list[int]]:
    """The number of each row group in its old file, in the order in which they are copied by this process."""
    copied: list[int] = []
    copy = BaseFileWriter.copy

    def noted(writer: BaseFileWriter, held: OpenBaseFile, number: int, **more: Any) -> None:
        copy(writer, held, number, **more)
        copied.append(number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseFileWriter, "copy", noted)
        yield copied
