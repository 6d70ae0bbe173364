"""Prepped rows: each names in `_hoodie_file_name` the file that it was read from, or nothing when it is new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_table.write.candidates import CandidateFiles
from skep_table.write.indexes.contract import KeyLookUp, LookedUp, numbers_of
from skep_table.write.keyed import partition_codes, rows_by, single
from skep_table.write.tags import MISSING_GROUP, NEW_KEY


@dataclass(frozen=True)
class NamedFiles(KeyLookUp):
    """Takes the file groups that rows name; nothing is read."""

    columns: ClassVar[tuple[str, ...]] = (RECORD_KEY, PARTITION_PATH, FILE_NAME)

    files: CandidateFiles

    def candidates(self, keyed: pa.Table) -> LookedUp:
        names = single(keyed.column(FILE_NAME))
        numbers = np.full(len(names), NEW_KEY, np.int64)
        paths, codes = partition_codes(keyed)
        for code, rows in rows_by(codes, len(paths)):
            numbers[rows] = self._numbers(paths[code], names.take(pa.array(rows)))
        return LookedUp(numbers)

    def _numbers(self, path: str, names: pa.Array) -> npt.NDArray[np.int64]:
        # a base file's name goes on after the file id, a row of a log has the file id alone
        ids = pc.replace_substring_regex(names, "_.*$", "")
        known = pa.array([file.file_id for file in self.files.get(path, ())], pa.string())
        at = numbers_of(ids, known, MISSING_GROUP)
        new = pc.equal(pc.fill_null(names, ""), "").to_numpy(zero_copy_only=False)
        return np.where(new, NEW_KEY, np.where(at >= 0, at + self.files.first_number(path), at))
