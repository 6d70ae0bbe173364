"""The row groups, and the columns of others, that are copied as bytes into new base files while a test writes."""

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
    copy, copy_all = BaseFileWriter.copy, BaseFileWriter.copy_all

    def noted(writer: BaseFileWriter, held: OpenBaseFile, number: int, **more: Any) -> None:
        copy(writer, held, number, **more)
        if more.get("changed") is None:
            copied.append(number)

    def all_noted(writer: BaseFileWriter, held: OpenBaseFile, numbers: list[int], **more: Any) -> None:
        copy_all(writer, held, numbers, **more)
        copied.extend(numbers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseFileWriter, "copy", noted)
        patch.setattr(BaseFileWriter, "copy_all", all_noted)
        yield copied


@contextmanager
def changed_columns() -> Iterator[list[tuple[str, ...]]]:
    """The columns that are encoded of each row group of which others are copied, but for that of file names."""
    changed: list[tuple[str, ...]] = []
    copy = BaseFileWriter.copy

    def noted(writer: BaseFileWriter, held: OpenBaseFile, number: int, **more: Any) -> None:
        copy(writer, held, number, **more)
        if more.get("changed") is not None:
            changed.append(tuple(more["changed"].schema.names))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseFileWriter, "copy", noted)
        yield changed
