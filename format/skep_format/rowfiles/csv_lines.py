"""The records of a CSV file of which some can't be read: each is found by reading parts of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.buffers import joined_lines
from skep_format.errors import InputError
from skep_format.rowfiles.csv_text import CsvForm, is_record, lines_of

Places = np.ndarray[tuple[int], np.dtype[np.int64]]

Read = Callable[[bytes], object]
"""Reads the text of a file. InputError where a line of it can't be read."""


@dataclass(slots=True)
class CsvLines:
    """The lines of a file, or its records where a record may have several; `records` are the places of those that are
    rows, `numbers` the line in which each begins, from 1 on.

    The first record decides how many values the others have, so that each part is read behind it.
    """

    lines: pa.Array
    records: Places
    numbers: Places
    has_header: bool
    _bad: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, text: bytes, form: CsvForm) -> CsvLines:
        """The lines of a `divided` text in UTF-8. CutError where records of several lines are not to be divided."""
        if form.multiline:
            return cls._of_several_lines(text.decode(), form)
        lines = lines_of(text)
        records = pc.indices_nonzero(is_record(lines, form.dialect)).to_numpy().astype(np.int64)
        return cls(lines, records, np.arange(1, len(lines) + 1), form.header)

    @classmethod
    def _of_several_lines(cls, text: str, form: CsvForm) -> CsvLines:
        records, numbers, at, number = [], [], 0, 1
        for _, begin, end in form.dialect.records(text):
            number += text.count("\n", at, begin)
            numbers.append(number)
            records.append(text[begin:end].removesuffix("\n").encode())
            number += text.count("\n", begin, end)
            at = end
        places = np.arange(len(records))
        return cls(pa.array(records, pa.large_binary()), places, np.array(numbers, np.int64), form.header)

    def bad(self, read: Read) -> Iterator[tuple[int, InputError]]:
        """The places of records that can't be read, in their order, with the reasons."""
        first, rest = self.records[:1], self.records[1:]
        while not self.has_header and len(first):
            reason = self._reason(read, first)
            if reason is None:
                break
            yield self._found(first, reason)
            first, rest = rest[:1], rest[1:]
        parts = [rest]
        while parts:
            part = parts.pop()
            reason = self._reason(read, np.concatenate((first, part))) if len(part) else None
            if reason is None:
                continue
            if len(part) == 1:
                yield self._found(part, reason)
                continue
            half = len(part) // 2
            parts += [part[half:], part[:half]]

    def text(self, place: int) -> str:
        """What is at a place."""
        return str(self.lines[place].as_py().decode("utf-8", "replace"))

    def without_bad(self) -> bytes:
        """The text with empty lines, which are no records, in the place of those that can't be read."""
        mask = np.zeros(len(self.lines), np.bool_)
        mask[self._bad] = True
        kept = pc.if_else(pa.array(mask), pa.scalar(b"", self.lines.type), self.lines)
        return joined_lines(kept).to_pybytes()

    def _found(self, line: Places, reason: InputError) -> tuple[int, InputError]:
        self._bad.append(int(line[0]))
        return int(line[0]), reason

    def _reason(self, read: Read, some: Places) -> InputError | None:
        try:
            read(joined_lines(self.lines.take(pa.array(some))).to_pybytes())
        except InputError as error:
            return error
        return None
