"""The format of a table by its version, checked against the tables that Hudi's releases wrote."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.names import LogFileName, MarkerType
from skep_format.table_config import TableConfig
from skep_format.timeline.instant import Action, Instant, State
from skep_format.versions import DEFAULT, TableFormat, format_of
from skep_table.table import HudiTable

VERSION_OF_RELEASE = {"0.15.0": 6, "1.0.2": 8, "1.1.1": 9}
BASE, OWN = InstantTime("20260101000000001"), InstantTime("20260102030405678")


def of_version(version: int) -> TableFormat:
    return format_of(TableConfig(name="t", version=version))


@pytest.mark.parametrize("release", VERSION_OF_RELEASE)
def test_log_files_of_golden_tables_are_named_as_their_format_states(golden: Path, release: str) -> None:
    """By the base instant of their slice in version 6, by their own delta commit from version 8 on."""
    found = 0
    for folder in sorted((golden / release).iterdir()):
        if not (folder / "table/.hoodie").is_dir():
            continue
        table = HudiTable.open(str(folder / "table"))
        assert table.format is of_version(VERSION_OF_RELEASE[release])
        for instant in table.timeline.of(Action.DELTA_COMMIT).completed():
            for stat in table.commit_metadata(instant).stats:
                name = LogFileName.parse(stat.path.rpartition("/")[2])
                if name is None or name.cdc:
                    continue
                found += 1
                own = instant.requested_time
                base = InstantTime(stat.prev_commit)
                expected = table.format.logs.new_file(name.file_id, base, own, name.version - 1, name.write_token or "")
                assert str(expected) == str(name)
    assert found


@pytest.mark.parametrize("release", VERSION_OF_RELEASE)
def test_ranges_include_golden_commits_by_the_times_of_their_version(golden: Path, release: str) -> None:
    table = HudiTable.open(str(golden / release / "cow_upsert/table"))
    for instant in table.timeline.data().completed():
        time = table.format.reads.time_in_range(instant)
        assert time == (instant.requested_time if release == "0.15.0" else instant.completion_time)


def test_log_files_of_version_6_continue_those_of_their_slice() -> None:
    logs = of_version(6).logs
    assert str(logs.new_file("f", BASE, OWN, 3, "0-1-2")) == f".f_{BASE}.log.4_0-1-2"
    assert logs.write_token(7, 2, OWN) == "7-30405678-2"
    assert logs.marker_type is MarkerType.APPEND
    assert not logs.rolled_back_by_deletion


@pytest.mark.parametrize("version", [8, 9])
def test_log_files_of_a_delta_commit_are_its_own(version: int) -> None:
    logs = of_version(version).logs
    assert str(logs.new_file("f", BASE, OWN, 0, "0-0-2")) == f".f_{OWN}.log.1_0-0-2"
    assert logs.write_token(7, 2, OWN) == "7-0-2"
    assert logs.marker_type is MarkerType.CREATE
    assert logs.rolled_back_by_deletion


def test_two_writers_of_one_slice_choose_different_names() -> None:
    """Same task and attempt, same slice and version: the delta commit's time makes the difference."""
    logs = DEFAULT.logs
    names = {
        str(logs.new_file("f", BASE, own, 1, logs.write_token(0, 0, own)))
        for own in (OWN, OWN.plus_milliseconds(1), OWN.plus_milliseconds(60_000))
    }
    assert len(names) == 3


def test_new_tables_are_of_the_version_that_every_engine_reads() -> None:
    assert DEFAULT.version == 6
    assert format_of(TableConfig(name="t")) is DEFAULT


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_format_is_the_same_object_in_another_process(version: int) -> None:
    assert pickle.loads(pickle.dumps(of_version(version))) is of_version(version)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_layout_pickles(version: int) -> None:
    config = TableConfig(name="t", version=version)
    layout = of_version(version).timeline_layout(config)
    again = pickle.loads(pickle.dumps(layout))
    done = Instant(BASE, Action.COMMIT, State.COMPLETED, CompletionTime(OWN))
    assert again.path(done) == layout.path(done)
    assert again.parse(layout.file_name(done)) == layout.parse(layout.file_name(done))
