"""The golden archives: unpacked once per machine, and what each case holds. See PROVENANCE.md."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

FOLDER = Path(__file__).parent
VERSIONS = ("0.15.0", "1.0.2", "1.1.1")
OLDER = "older"
"""The archive of tables of versions before 6: they are not unpacked with the others, of which each test takes all."""


@dataclass(frozen=True)
class Query:
    """One question that Hudi was asked. `file` is the name of its answer below `expected/`; None where it refused."""

    kind: str
    options: Mapping[str, str]
    file: str | None
    error: str | None
    where: str | None

    @property
    def id(self) -> str:
        """What the exceptions and the test names call it."""
        return self.file or f"{self.kind}_" + "_".join(v for k, v in sorted(self.options.items()) if v[:1].isdigit())


@dataclass(frozen=True)
class Case:
    """One table that Hudi wrote, with its answers."""

    version: str
    name: str
    folder: Path

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @cached_property
    def facts(self) -> dict[str, Any]:
        return json.loads((self.folder / "case.json").read_text())

    @property
    def queries(self) -> Iterator[Query]:
        for query in self.facts["queries"]:
            file = query["file"]
            yield Query(
                query["kind"],
                query["options"],
                file and file.removeprefix("expected/"),
                query.get("error"),
                query.get("where"),
            )

    @cached_property
    def instants(self) -> list[dict[str, Any]]:
        """Completed instants in the order in which the operations made them: instant, completion, action."""
        return [added for operation in self.facts["operations"] for added in operation.get("instants_added") or []]

    @property
    def expected_schema(self) -> dict[str, Any]:
        """The Spark schema of the snapshot."""
        return json.loads((self.folder / "expected" / "schema.json").read_text())

    def all_expected_rows(self) -> Iterator[dict[str, Any]]:
        """The rows of all answers that are rows of the table."""
        for query in self.queries:
            if query.file is not None and query.kind != "cdc":
                yield from self.expected(query.file)

    def expected(self, file: str) -> list[dict[str, Any]]:
        with (self.folder / "expected" / file).open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]


def unpack(cache: Path, versions: Iterable[str] = VERSIONS) -> Path:
    """The folder that holds `<hudi version>/<case>/`: unpacked below `cache` when it is not there yet.

    The folder's name is the digest of the archives, and it appears whole (a rename) or not at all, so that test runs
    side by side share it.
    """
    archives = [FOLDER / f"hudi-{version}.tar.zst" for version in versions]
    digest = hashlib.sha256(b"".join(hashlib.sha256(archive.read_bytes()).digest() for archive in archives))
    target = cache / f"golden-{digest.hexdigest()[:16]}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix="unpacking-", dir=cache))
    try:
        for archive in archives:
            # Python 3.11's tarfile knows no zstd
            with (
                pa.CompressedInputStream(str(archive), "zstd") as stream,
                tarfile.open(fileobj=stream, mode="r|") as tar,
            ):
                if hasattr(tarfile, "data_filter"):
                    tar.extractall(staged, filter="data")
                else:
                    tar.extractall(staged)
        try:
            staged.rename(target)
        except OSError:
            if not target.is_dir():  # another run was first
                raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return target


# Snapshots that hudi-rs 0.5.0 answers otherwise than Hudi, or refuses.
_HUDI_RS_DIFFERS = {
    "cow_bootstrap_metadata_only": "reads the skeleton files alone",
    "cow_custom_keygen": "does not unescape hoodie.properties, or takes the partition column from the file",
    "cow_drop_partition_columns": "refuses tables that dropped their partition columns",
    "cow_global_index": "takes partition columns from the file",
    "cow_record_index": "takes partition columns from the file",
    "cow_special_chars_urlencode_hive": "takes partition columns from the file: empty text is not null there",
    "mor_schema_evolution": "refuses log records with a narrower schema",
    "0.15.0/cow_timestamp_keygen_date_string": "takes the partition column from the file",
    "0.15.0/mor_compaction": "does not put the logs of a pending compaction onto the slice before",
}


def hudi_rs_differs(case: Case) -> str | None:
    """Why the independent reader can't be asked for this case's snapshot."""
    return _HUDI_RS_DIFFERS.get(case.name) or _HUDI_RS_DIFFERS.get(f"{case.version}/{case.name}")


def cases(root: Path, versions: Iterable[str] = VERSIONS) -> list[Case]:
    return [Case(version, folder.name, folder) for version in versions for folder in sorted((root / version).iterdir())]
