"""Which tests a commit runs: all but the slow ones, and of files whose cases take long a share of each test's cases.

`./dev test --all` runs every one. This is where the time that CI takes is steered: raise a number, or add a file.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

ONE_OF: Mapping[str, int] = {
    "engines/test_asking.py": 4,
    "engines/test_check.py": 3,
    "engines/test_clients.py": 4,
    "engines/test_commits.py": 3,
    "engines/test_queries.py": 3,
    "engines/test_registered_by_hudi.py": 2,
    "engines/test_upgraded_tables.py": 2,
    "peers/test_change_data.py": 5,
    "peers/test_jvm_reads_ours.py": 6,
    "peers/test_merge_on_read.py": 6,
    "peers/test_metadata_table_written.py": 3,
    "peers/test_ours_reads_jvm.py": 5,
    "peers/test_services.py": 6,
    "peers/test_sql_written.py": 3,
    "peers/test_stream_kafka.py": 2,
    "peers/test_write_matrix.py": 5,
    "skep/test_docs.py": 3,
    "skep/test_hudi_jobs.py": 3,
    "skep/test_snapshots.py": 2,
    "sql/test_golden_scripts.py::test_script": 6,
    "stream/test_many_streams.py": 2,
    "sync/test_sync.py": 3,
    "table/avro/test_avro.py": 2,
    "table/commit/test_faults.py": 3,
    "table/metadata_write/test_all_indexes.py": 5,
    "table/metadata_write/test_faults.py": 3,
    "table/metadata_write/test_history.py": 2,
    "table/metadata_write/test_indexes_kept.py": 3,
    "table/metadata_write/test_log_compact.py": 2,
    "table/metadata_write/test_secondary_types.py": 2,
    "table/query/test_golden_pruning.py": 2,
    "table/query/test_hostile.py": 3,
    "table/query/test_index_properties.py": 4,
    "table/query/test_ranges.py": 3,
    "table/services/test_indexing_action.py": 5,
    "table/services/test_indexing_beside.py": 5,
    "table/services/test_metadata_admin.py": 2,
    "table/services/test_metadata_check.py": 2,
    "table/services/test_rollback.py": 3,
    "table/write/test_change_replay.py": 3,
    "table/write/test_on_storages.py": 2,
    "table/write/test_record_index.py": 2,
    "table/write/test_spilled.py": 3,
    "writer/test_executors.py": 3,
    "writer/test_pruned_spark.py": 5,
    "writer/test_spark_frames.py": 4,
    "writer/test_spark_operations.py": 4,
    "writer/test_spark_reads.py": 5,
    "writer/test_spark_settings.py": 5,
    "writer/test_spark_skipping.py": 5,
    "writer/test_spark_types.py": 5,
    "writer/test_spark_write.py": 4,
    "writer/test_tagging.py": 5,
    "writer/test_without_conflicts.py": 2,
}
"""By file below tests/, or by test: a run takes one of so many of the cases of each test, and always at least one."""


def sample(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The items that run without --all.

    The same cases each time, in whatever order they come: by a checksum of their names, so that neither a release nor
    a type of table is left out of all tests. UsageError for a file that is not there any more.
    """
    if missing := [name for name in ONE_OF if not (TESTS / name.partition("::")[0]).is_file()]:
        raise pytest.UsageError(f"tests/sampling.py names files that are not there: {', '.join(missing)}")
    kept: set[pytest.Item] = set()
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") is None:
            cases[item.nodeid.partition("[")[0]].append(item)
    for test, of_test in cases.items():
        name = test.removeprefix("tests/")
        one_of = ONE_OF.get(name, ONE_OF.get(name.partition("::")[0], 1))
        by_checksum = sorted(of_test, key=lambda item: (zlib.crc32(item.nodeid.encode()), item.nodeid))
        kept.update(by_checksum[: math.ceil(len(by_checksum) / one_of)])
    return kept
