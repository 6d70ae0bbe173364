"""Bootstraps that fail or die at each storage call: nothing of them is seen, and the next one is whole."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import left_behind
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_storage import FaultyStorage, KilledAtChanges
from left_behind import content
from pyarrow import orc

from skep_format.errors import SkepError, TableMismatchError
from skep_format.names import BaseFormat
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.storage import LocalStorage, Storage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.bootstrap.options import BootstrapSettings
from skep_table.write.bootstrap.source import SourceData, open_source, read_source
from skep_table.write.local import LocalWriter

SELECTORS = {
    "skeletons": {},
    "orc": {},
    "rows": {"hoodie.bootstrap.mode.selector": "FullRecordBootstrapModeSelector"},
    "both": {
        "hoodie.bootstrap.mode.selector": "BootstrapRegexModeSelector",
        "hoodie.bootstrap.mode.selector.regex": "part=p",
    },
}
INDEX = Path(".hoodie") / ".aux" / ".bootstrap"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two partitions of one file each."""
    for part, ids in {"p": ["a", "b"], "q": ["c"]}.items():
        (tmp_path / "source" / f"part={part}").mkdir(parents=True)
        rows = pa.table({"id": ids, "ts": pa.array([1] * len(ids), pa.int64())})
        pq.write_table(rows, tmp_path / "source" / f"part={part}" / "0.parquet")
    return tmp_path / "source"


def source_of(folder: Path, options: dict[str, str]) -> tuple[SourceData, Options]:
    given = Options({"hoodie.bootstrap.base.path": str(folder), **options})
    settings = BootstrapSettings.of(given)
    return read_source(open_source(given), ("id",), settings, ThreadRunner(1)), given


def bootstrap(storage: Storage | str, source: SourceData, options: Options) -> None:
    context = {"runner": ThreadRunner(1), "options": options}
    LocalWriter(HudiTable.open(storage).with_context(**context)).bootstrap(source)


def assert_clean(folder: Path) -> None:
    """As of other writes, and no index without skeletons."""
    left_behind.assert_clean(folder)
    completed = {instant.requested_time for instant in HudiTable.open(str(folder)).timeline.completed().data()}
    assert len(list((folder / INDEX).rglob("*.hfile"))) == (2 if "00000000000001" in completed else 0)


@pytest.mark.filterwarnings("ignore::skep_table.query.plan.PartlyBootstrappedWarning")
@pytest.mark.parametrize(
    ("version", "metadata"),
    [(6, "false"), *(pytest.param(each, "true", marks=pytest.mark.slow) for each in (6, 9))],
)
@pytest.mark.parametrize(
    "kind", ["skeletons", "orc", *(pytest.param(k, marks=pytest.mark.slow) for k in ("rows", "both"))]
)
@pytest.mark.parametrize("dies", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["dies", "fails"])
def test_a_fault_at_any_change_leaves_nothing_or_a_commit(
    kind: str, version: int, metadata: str, dies: bool, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a bootstrap of both kinds also the first commit alone, on which nobody writes before it is whole."""
    caplog.set_level(logging.CRITICAL, "skep")
    base_format = BaseFormat.ORC if kind == "orc" else BaseFormat.PARQUET
    if base_format is BaseFormat.ORC:
        for file in folder.rglob("*.parquet"):
            orc.write_table(pq.read_table(file, partitioning=None), file.with_suffix(".orc"))
            file.unlink()
    source, options = source_of(folder, {"hoodie.metadata.enable": metadata, **SELECTORS[kind]})
    empty, target = tmp_path / "empty", tmp_path / "table"
    spec = TableSpec(
        name="t",
        schema=to_arrow(source.columns),
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        hive_style=True,
        version=version,
        base_format=base_format,
    )
    create_table(LocalStorage(str(empty)), spec)
    part = [("a", "part=p", 1), ("b", "part=p", 1)]
    whole = [*part, ("c", "part=q", 1)]
    at = 1
    while True:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(empty, target)
        storage = KilledAtChanges(str(target), at) if dies else FaultyStorage(str(target), at)
        failed = False
        try:
            bootstrap(storage, source, options)
        except SkepError:
            failed = True
        where = storage.calls[at - 1] if storage.hit else "no fault"
        found = content(target)
        assert found in ([], whole) or (kind == "both" and found == part), where
        assert failed or found == whole, where
        if found == part:
            with pytest.raises(TableMismatchError, match="its bootstrap was ended"):
                LocalWriter(HudiTable.open(str(target))).upsert(pa.table({"id": ["z"], "ts": [1], "part": ["p"]}))
        if found != whole:
            bootstrap(str(target), source, options)
        assert content(target) == whole, where
        LocalWriter(HudiTable.open(str(target), {"hoodie.metadata.enable": metadata})).upsert(
            pa.table({"id": ["a", "z"], "ts": [2, 2], "part": ["p", "q"]})
        )
        assert content(target) == [("a", "part=p", 2), *whole[1:], ("z", "part=q", 2)], where
        assert_clean(target)
        if not storage.hit:
            break
        at += 1
