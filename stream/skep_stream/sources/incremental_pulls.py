"""HiveIncrPullSource: a folder of Avro files for each incremental pull, named by the last commit in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from skep_format.errors import InputError
from skep_format.rowfiles.typed_rows import typed_rows
from skep_format.schema.types import META_FIELDS
from skep_format.storage import FileStatus, Storage, open_storage
from skep_stream.options import PULLS
from skep_stream.protocols import Batch, Position, StreamContext


@dataclass(frozen=True, slots=True)
class IncrPullSource:
    """Pulls one after another; the checkpoint is the name of the last folder read."""

    storage: Storage

    def fetch(self, last: Position, limit: int) -> Batch:  # noqa: ARG002 - a pull is read whole
        """The rows of the next pull, without meta columns. InputError where the folder of pulls is not there.

        The newest folder is left while it has no files: its pull is not complete.
        """
        later = ((name, self._files(name)) for name in self._later(last))
        name, files = next(((name, files) for name, files in later if files), ("", ()))
        if not files:
            return Batch(None, last.checkpoint)
        tables = [typed_rows("avro", self.storage.uri(file.path), self.storage.read(file.path)) for file in files]
        rows = pa.concat_tables(tables, promote_options="permissive")
        return Batch(rows.drop_columns([each for each in rows.schema.names if each in META_FIELDS]), name)

    def waiting(self, last: Position) -> dict[str, int]:
        """How many pulls have not been read."""
        return {"waiting_pulls": len(self._later(last))}

    def _later(self, last: Position) -> list[str]:
        found = [name for name in self.storage.list_folder("").folders if name.strip("/").isdigit()]
        if not found and not self.storage.exists(""):
            raise InputError(f"the folder of pulls {self.storage.root} is not there", path=self.storage.root)
        names = sorted(name.strip("/") for name in found)
        return [name for name in names if last.checkpoint is None or name > last.checkpoint]

    def _files(self, folder: str) -> Sequence[FileStatus]:
        found = self.storage.list_folder(folder).files
        return sorted(
            (file for file in found if file.size_bytes and not file.name.startswith((".", "_"))),
            key=lambda file: file.path,
        )


def incr_pull_source(context: StreamContext) -> IncrPullSource:
    """HiveIncrPullSource."""
    root = context.options.needed(PULLS, "HiveIncrPullSource needs")
    return IncrPullSource(open_storage(root, context.options))
