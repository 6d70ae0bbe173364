"""skep's sync beside HiveSyncTool: the same tables into two databases of one metastore, compared field by field.

What differs on purpose is listed, each with its reason, in hive_sync_differences.toml; nothing else may.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import golden_archives
import pytest
from peer_hive_entries import Difference, Found, compare, deliberate, entries
from peer_hive_tables import MADE

from benchmarks.peers.jvm import Jvm
from skep_catalog.client import Metastore
from skep_catalog.entities import Database
from skep_format.options import Options
from skep_sync.sync import plan_sync, sync_table
from skep_table.table import HudiTable

HIVE = "hoodie.datasource.hive_sync."
META = "hoodie.meta.sync."
BUCKETS = {
    HIVE + "bucket_sync": "true",
    HIVE + "bucket_sync_spec": "CLUSTERED BY (id) SORTED BY (id ASC) INTO 8 BUCKETS",
}


@dataclass(frozen=True)
class Case:
    """A golden table, synced with options; in two steps when `later`: once before its last commit, once after."""

    name: str
    table: str
    options: Mapping[str, str] = field(default_factory=dict)
    release: str = "0.15.0"
    later: bool = False
    slow: bool = True


def _case(name: str, table: str, **more: object) -> Case:
    return Case(name, table if "/" in table else f"0.15.0/{table}", **more)  # type: ignore[arg-type]


def _extractor(name: str) -> dict[str, str]:
    return {HIVE + "partition_extractor_class": f"org.apache.hudi.hive.{name}"}


OPTIONS = [
    _case("plain", "cow_upsert", slow=False),
    _case("views", "mor_upsert", slow=False),
    _case("only the read-optimized view", "mor_upsert", options={HIVE + "table.strategy": "RO"}),
    _case("only the snapshot view", "mor_upsert", options={HIVE + "table.strategy": "RT"}),
    _case("no snapshot under the plain name", "mor_upsert", options={META + "sync_snapshot_with_table_name": "false"}),
    _case(
        "plain name for the read-optimized view",
        "mor_upsert",
        options={HIVE + "skip_ro_suffix": "true", META + "sync_snapshot_with_table_name": "false"},
    ),
    _case("plain name asked for twice", "mor_upsert", options={HIVE + "skip_ro_suffix": "true"}),
    _case("every type", "cow_types_edge", slow=False),
    _case("timestamps", "cow_types_edge", options={HIVE + "support_timestamp": "true"}, slow=False),
    _case("numbers for timestamps", "cow_types_edge", options={HIVE + "support_timestamp": "false"}),
    _case("not for Spark", "mor_upsert", options={HIVE + "sync_as_datasource": "false"}, slow=False),
    _case(
        "properties",
        "cow_upsert",
        options={HIVE + "table_properties": "a=1\nb=two", HIVE + "serde_properties": "c=3\nd=4"},
        slow=False,
    ),
    _case("comments", "cow_upsert", options={HIVE + "sync_comment": "true"}),
    _case("managed", "cow_upsert", options={HIVE + "create_managed_table": "true"}),
    _case("without meta columns", "mor_upsert", options={HIVE + "omit_metadata_fields": "true"}, slow=False),
    _case("older input formats", "mor_upsert", options={HIVE + "use_pre_apache_input_format": "true"}),
    _case("short pieces of the schema", "cow_types_edge", options={HIVE + "schema_string_length_thresh": "333"}),
    _case("Spark's version", "cow_upsert", options={"hoodie.meta_sync.spark.version": "3.5.9"}),
    _case("small batches", "cow_upsert", options={HIVE + "batch_num": "1"}),
    _case("all partitions", "cow_upsert", options={META + "incremental": "false"}, later=True),
    _case("a new commit", "cow_upsert", later=True, slow=False),
    _case("a new commit, views", "mor_upsert", later=True, slow=False),
    _case("new columns", "cow_schema_evolution", later=True, slow=False),
    _case("encoded values", "cow_special_chars_urlencode_hive", options={META + "decode_partition": "true"}),
    _case("days", "made/days", options=_extractor("SlashEncodedDayPartitionValueExtractor"), later=True),
    _case("hours", "made/hours", options=_extractor("SlashEncodedHourPartitionValueExtractor"), later=True),
    _case("days in one part", "made/days", options=_extractor("SinglePartPartitionValueExtractor")),
    _case("two levels", "made/two_levels", later=True),
    _case(
        "two levels in one part",
        "made/two_levels",
        options={**_extractor("SinglePartPartitionValueExtractor"), HIVE + "partition_fields": "pq"},
    ),
    _case("hive style in parts", "made/dates", options=_extractor("MultiPartKeysValueExtractor")),
    _case("numbers as values", "made/numbers", later=True),
    _case("longs as values", "made/longs"),
    _case("dates as values", "made/dates", later=True),
    _case("flags as values", "made/flags"),
    _case("upper case", "made/upper_case", later=True),
    _case("no partitions", "made/without_partitions", later=True),
    _case("partitions not registered", "made/dates", options={META + "no_partition_metadata": "true"}, release="1.2.0"),
    _case("comments of columns", "made/commented", options={HIVE + "sync_comment": "true"}, later=True),
    _case("comments by default", "made/commented"),
    _case("comments not asked for", "made/commented", options={HIVE + "sync_comment": "false"}),
    _case("a partition dropped", "made/partition_dropped", later=True, slow=False),
    _case("a partition that comes back", "made/partition_comes_back", later=True),
    _case("widened columns", "made/widened", later=True),
    _case("added columns", "made/column_added", later=True),
    _case("a member added", "made/member_added", later=True),
    _case("buckets", "made/dates", options=BUCKETS, later=True),
    _case("odd names", "made/odd_names"),
    _case("escaped values", "made/escaped"),
    _case("ORC", "made/orc", options={HIVE + "base_file_format": "ORC"}, later=True),
    _case("ORC, views", "made/orc_merge_on_read", options={HIVE + "base_file_format": "ORC"}, later=True),
    _case("HFile", "made/hfile", options={HIVE + "base_file_format": "HFILE"}, later=True),
]
NEWER = [
    replace(case, name=f"{case.name} (1.2.0)", release="1.2.0", slow=True)
    for case in OPTIONS
    if case.name != "older input formats"  # removed in Hudi 1.x
]


CASES = {case.name: case for case in [*OPTIONS, *NEWER]}


def _golden(case: golden_archives.Case) -> Case:
    """A golden table before and after its last commit, by a release that reads its version."""
    release = "0.15.0" if case.version == "0.15.0" else "1.2.0"
    return Case(f"golden {case.version} {case.name}", f"{case.version}/{case.name}", release=release, later=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        root = golden_archives.unpack(Path(metafunc.config.cache.mkdir("golden")))
        cases = [*CASES.values(), *map(_golden, golden_archives.cases(root))]
        metafunc.parametrize("case", [pytest.param(case, marks=_marks(case), id=case.name) for case in cases])


@pytest.fixture
def beside(golden: Path, jvm: Callable[[str], Jvm], metastore: Metastore, tmp_path: Path) -> Beside:
    return Beside(golden, jvm, metastore, tmp_path)


@dataclass(frozen=True)
class Beside:
    """Syncs a case with both and gives the fields on which their entries disagree."""

    golden: Path
    jvm: Callable[[str], Jvm]
    metastore: Metastore
    folder: Path

    def run(self, case: Case) -> list[Found]:
        hudi = self.jvm(case.release)
        names = [f"{who}_{uuid.uuid4().hex[:8]}" for who in ("theirs", "ours")]
        paths = [self.folder / name for name in names]
        given = self._write(case, paths[0])
        shutil.copytree(*paths)
        for database in names:
            self.metastore.create_database(Database(database, location=f"file://{self.folder}/{database}.db"))
        try:
            for step in range(2 if case.later else 1):
                if case.later:
                    for path in paths:
                        hide_last_commit(path, step == 0)
                writers = _writers(paths[0], names[0], self.metastore.uri)
                hudi.sync(self.metastore.uri, {**given, **writers, **case.options})
                table, options = HudiTable.open(str(paths[1])), Options(case.options)
                sync_table(table, self.metastore, names[1], table.config.name, options)
                assert not plan_sync(table, self.metastore, names[1], table.config.name, options)
            theirs, ours = (entries(self.metastore, database) for database in names)
            return compare(json.loads(json.dumps(theirs).replace(names[0], names[1])), ours)
        finally:
            for database in names:
                self.metastore.drop_database(database, cascade=True)

    def _write(self, case: Case, path: Path) -> dict[str, str]:
        """Puts the table there; returns the options that its writer had."""
        version, _, name = case.table.partition("/")
        if version == "made":
            MADE[name](path)
            return {}
        golden = next(c for c in golden_archives.cases(self.golden) if (c.version, c.name) == (version, name))
        shutil.copytree(golden.table, path)
        return dict(golden.facts["base_options"])


def hide_last_commit(path: Path, hide: bool) -> None:
    """Takes the newest completed write off the timeline of a table, or puts it back."""
    table = HudiTable.open(str(path))
    folder = path / table.timeline.layout.folder
    hidden = path.parent / f"{path.name}-hidden"
    hidden.mkdir(exist_ok=True)
    if hide:
        last = table.timeline.data().completed().instants[-1]
        for file in [file for file in folder.iterdir() if file.name.startswith(last.requested_time)]:
            file.rename(hidden / file.name)
    else:
        for file in list(hidden.iterdir()):
            file.rename(folder / file.name)


def _writers(path: Path, database: str, uri: str) -> dict[str, str]:
    """What Hudi's writer hands to its tool beside its own options: the table's settings of its partitions."""
    config = HudiTable.open(str(path)).config
    return {
        "hoodie.datasource.write.hive_style_partitioning": str(config.hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(config.url_encode).lower(),
        "hoodie.datasource.meta.sync.base.path": f"file://{path}",
        HIVE + "partition_fields": ",".join(config.partition_fields),
        HIVE + "mode": "hms",
        HIVE + "metastore.uris": uri,
        HIVE + "database": database,
        HIVE + "table": config.name,
    }


def _unlisted(case: Case, found: list[Found]) -> str:
    """The differences that nobody meant to be there, one a line."""
    listed = deliberate()
    return "\n".join(str(one) for one in found if not any(meant.covers(case.name, one) for meant in listed))


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    return [pytest.mark.peer(f"hudi-{case.release}"), *([pytest.mark.slow] if case.slow else [])]


@pytest.mark.metastore
def test_entries_are_equal_but_for_what_is_listed(case: Case, beside: Beside) -> None:
    unlisted = _unlisted(case, beside.run(case))
    assert not unlisted, f"\n{unlisted}"


@pytest.mark.metastore
@pytest.mark.slow
@pytest.mark.peer("hudi-0.15.0")
@pytest.mark.parametrize("meant", deliberate(), ids=lambda meant: meant.where)
def test_what_is_listed_is_so(meant: Difference, beside: Beside) -> None:
    case = CASES[meant.seen]
    assert any(meant.covers(case.name, found) for found in beside.run(case))
