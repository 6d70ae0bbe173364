"""Cleaning plans: those of Hudi's own tables are found again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from skep_format.options import Options
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CleanerPlan
from skep_table.services.cleaning.clean import plan_clean
from skep_table.table import HudiTable


def names(plan: CleanerPlan) -> dict[str, set[str]]:
    return {
        partition: {(file.file_path or "").rpartition("/")[2] for file in files}
        for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items()
    }


def rewind(folder: Path, table: HudiTable, until: Instant) -> HudiTable:
    """The table before a clean, with empty files where the clean and later ones deleted something."""
    for clean in table.timeline.completed().of(Action.CLEAN):
        if clean.requested_time < until.requested_time:
            continue
        plan = table.requested_plan(CleanerPlan, clean)
        assert plan is not None
        for partition, files in names(plan).items():
            for name in files:
                (folder / partition / name).touch()
    for file in (folder / ".hoodie").iterdir():
        if file.name[:17].isdigit() and file.name[:17] >= until.requested_time:
            file.unlink()
    return HudiTable.open(str(folder))


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize(("case", "retained"), [("cow_clean", 2), ("cow_archive", 1)])
def test_plans_of_hudi_are_found_again(
    case: str, retained: int, incremental: bool, golden: Path, tmp_path: Path
) -> None:
    source = golden / "0.15.0" / case / "table"
    opened = HudiTable.open(str(source))
    # Commits that the first clean saw may be archived by now: its basis is no longer known.
    cleans = opened.timeline.completed().of(Action.CLEAN).instants[1 if case == "cow_archive" else 0 :]
    assert len(cleans) >= 3
    setting = {
        "options": Options(
            {
                "hoodie.cleaner.commits.retained": retained,
                "hoodie.keep.min.commits": 30,
                "hoodie.cleaner.incremental.mode": incremental,
            }
        )
    }
    for number, clean in enumerate(cleans):
        folder = tmp_path / str(number)
        shutil.copytree(source, folder)
        expected = opened.requested_plan(CleanerPlan, clean)
        assert expected is not None
        plan = plan_clean(rewind(folder, opened, clean).with_context(**setting))
        assert names(plan) == names(expected)
        assert plan.earliest_instant_to_retain == expected.earliest_instant_to_retain
        assert plan.last_completed_commit_timestamp == expected.last_completed_commit_timestamp
        assert (plan.policy, plan.version) == (expected.policy, expected.version)
        assert plan.partitions_to_be_deleted == expected.partitions_to_be_deleted
        assert plan.extra_metadata == expected.extra_metadata
