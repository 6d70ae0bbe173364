"""Tables that are brought from version to version: made by Hudi or here, with their rows as they have to stay."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage, Storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.context import TableContext
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.upgrade import change_version
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
# What a compaction writes again.
NOT_COMPARED = frozenset({"_hoodie_file_name", "_hoodie_commit_seqno"})


@dataclass
class Tables:
    """A table in a folder. Threads: one, so that calls come in the same order every time."""

    folder: Path

    def create(self, version: int, kind: TableType, **more: object) -> Tables:
        spec = TableSpec(
            name="t",
            schema=SCHEMA,
            record_key=("id",),
            partition_by=("part",),
            type=kind,
            version=version,
            **{"ordering": "ts", **more},  # type: ignore[arg-type]
        )
        create_table(LocalStorage(str(self.folder)), spec)
        return self

    def opened(self, storage: Storage | None = None, options: Mapping[str, object] | None = None) -> HudiTable:
        context = TableContext(storage or LocalStorage(str(self.folder)), Options(options), runner=ThreadRunner(1))
        return HudiTable.in_context(context)

    def frame(self, ts: int, *keys: str) -> pa.Table:
        """Keys are `partition/id`."""
        rows = [key.split("/") for key in keys]
        return pa.table([[r[1] for r in rows], [r[0] for r in rows], [ts] * len(rows)], schema=SCHEMA)

    def upsert(self, ts: int, *keys: str) -> str:
        return LocalWriter(self.opened()).upsert(self.frame(ts, *keys)).instant.requested_time

    def to(self, version: int, storage: Storage | None = None) -> HudiTable:
        return change_version(self.opened(storage), version)

    def rows(self, without: Collection[str] = (), **request: object) -> Counter[str]:
        """Rows as texts, with how often each occurs."""
        return self.rows_in(self.opened(), without, **request)

    @staticmethod
    def rows_in(table: HudiTable, without: Collection[str] = (), **request: object) -> Counter[str]:
        """The rows of a snapshot."""
        found = read(table, ReadRequest(**request)).to_arrow()  # type: ignore[arg-type]
        kept = found.select([name for name in found.schema.names if name not in {*NOT_COMPARED, *without}])
        return Counter(map(str, kept.to_pylist()))

    def copy(self, folder: Path) -> Tables:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        return Tables(folder)

    def files(self) -> set[str]:
        """All files, but locks and the sides of writers."""
        return {str(file.relative_to(self.folder)) for file in self.folder.rglob("*") if file.is_file()}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path / "table")


@pytest.fixture
def older_table(older_golden: Path, tmp_path: Path) -> Callable[[str], Tables]:
    def copy(case: str) -> Tables:
        return Tables(older_golden / case / "table").copy(tmp_path / case)

    return copy


@pytest.fixture
def golden_table(golden: Path, tmp_path: Path) -> Callable[[str, str], Tables]:
    def copy(release: str, case: str) -> Tables:
        return Tables(golden / release / case / "table").copy(tmp_path / case)

    return copy
