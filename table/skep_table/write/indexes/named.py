"""Prepped rows: each names in `_hoodie_file_name` the file that it was read from, or nothing when it is new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.runner import Runner
from skep_format.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_table.keys.text import single
from skep_table.write.indexes.contract import KeyLookUp, LookedUp, numbers_of
from skep_table.write.keyed import named, partition_codes, rows_by
from skep_table.write.planning.candidates import CandidateFiles
from skep_table.write.tags import MISSING_GROUP, NEW_KEY, Positions

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class NamedFiles(KeyLookUp):
    """Takes the file groups that rows name; nothing is read."""

    columns = (RECORD_KEY, PARTITION_PATH, FILE_NAME)

    files: CandidateFiles

    def candidates(self, keyed: pa.Table) -> LookedUp:
        names = single(keyed.column(FILE_NAME)).dictionary_encode(null_encoding="encode")  # many rows name a file
        files = names.indices.to_numpy()
        numbers = np.full(len(names), NEW_KEY, np.int64)
        paths, codes = partition_codes(keyed)
        for code, rows in rows_by(codes, len(paths)):
            among, places = np.unique(files[rows], return_inverse=True)
            numbers[rows] = self._numbers(paths[code], names.dictionary.take(pa.array(among)))[places]
        return LookedUp(numbers)

    def _numbers(self, path: str, names: pa.Array) -> npt.NDArray[np.int64]:
        # a base file's name goes on after the file id, a row of a log has the file id alone
        ids = pc.replace_substring_regex(names, "_.*$", "")
        known = pa.array([file.file_id for file in self.files.get(path, ())], pa.string())
        at = numbers_of(ids, known, MISSING_GROUP)
        return np.where(named(names), np.where(at >= 0, at + self.files.first_number(path), at), NEW_KEY)


@dataclass(frozen=True)
class NamedOrFound(KeyLookUp):
    """Takes the file groups that rows name, and those that an index finds for the others.

    New to the reader of a table is not new to its index: a key that a log deleted is in the base file still. Its rows
    have to go where the index finds it, or a later write that asks the index would put it into a second file group.
    """

    confirms: ClassVar[bool] = True

    by_name: NamedFiles
    by_key: KeyLookUp
    columns: tuple[str, ...]
    positions: bool

    @classmethod
    def of(cls, files: CandidateFiles, by_key: KeyLookUp) -> Self:
        """`by_key` looks up the rows that name no file."""
        by_name = NamedFiles(files)
        return cls(by_name, by_key, tuple(dict.fromkeys((*by_name.columns, *by_key.columns))), by_key.positions)

    @property
    def among_several(self) -> KeyLookUp | None:
        return self.by_key.among_several

    @property
    def shard_bytes(self) -> Sequence[int]:
        return self.by_key.shard_bytes

    def with_ranges(self, runner: Runner) -> NamedOrFound:
        return replace(self, by_key=self.by_key.with_ranges(runner))

    def candidates(self, keyed: pa.Table) -> LookedUp:
        numbers = self.by_name.candidates(keyed).numbers
        rows = np.flatnonzero(numbers == NEW_KEY)
        if not len(rows):
            return LookedUp(numbers)
        found = self.by_key.candidates(keyed.select(self.by_key.columns).take(pa.array(rows)).combine_chunks())
        numbers[rows] = found.numbers
        return LookedUp(numbers, replace(found.candidates, rows=rows[found.candidates.rows]))

    def in_shard(self, number: int, keys: pa.Array) -> LookedUp:
        return self.by_key.in_shard(number, keys)

    def confirm(self, number: int, keys: pa.Array) -> Positions:
        return self.by_key.confirm(number, keys)
