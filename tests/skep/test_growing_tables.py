"""What operations cost does not follow what a table has and they have nothing to do with: calls of storage, by name.

On the tables of `./dev bench growth`, which measures time and memory on large ones.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.grown_tables import KINDS, Kind, Size, make
from benchmarks.growth_worker import OPERATIONS, counted
from skep.cli.main import app
from skep_format.timeline.layout import TimelineLayout
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

CHANGE = "upsert of one row"
SIZES: dict[str, tuple[Size, Size]] = {
    "partitions": (Size(partitions=11), Size(partitions=25)),
    "active commits": (Size(), Size(commits=60)),
    "archived commits": (Size(archived=True), Size(commits=60, archived=True)),
}
of_each_kind = pytest.mark.parametrize("kind", KINDS, ids=[f"version {kind.version}" for kind in KINDS])


def costs(place: Path, kind: Kind, size: Size) -> dict[str, Counter[str]]:
    """The calls of each operation; those that need a metastore apart."""
    make(place, kind, size)
    found = {}
    for name, (_, work) in OPERATIONS.items():
        if not name.startswith("sync") and (kind.version == 9 or "compaction" not in name):
            with counted() as calls:
                work(place, kind, "")
            found[name] = Counter(calls)
    return found


@of_each_kind
@pytest.mark.parametrize("grown", SIZES)
def test_what_is_there_costs_no_calls(kind: Kind, grown: str, tmp_path: Path) -> None:
    few, many = (costs(tmp_path / str(number), kind, size) for number, size in enumerate(SIZES[grown]))
    assert few[CHANGE].total() > 20
    assert many == few


@of_each_kind
def test_names_of_a_timeline_are_parsed_once(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a write lists it: the same number of names but for those that the first listing has more."""
    parsed: list[str] = []
    real = TimelineLayout.parse_name
    monkeypatch.setattr(TimelineLayout, "parse_name", lambda self, name: parsed.append(name) or real(self, name))
    others = []
    for number, size in enumerate(SIZES["active commits"]):
        make(tmp_path / str(number), kind, size)
        parsed.clear()
        OPERATIONS[CHANGE][1](tmp_path / str(number), kind, "")
        listed = [*Counter(parsed)]
        others.append(len(parsed) - len(listed))
    assert others[0] == others[1]


@of_each_kind
@pytest.mark.parametrize(
    ("size", "rows"),
    [
        (Size(partitions=12), 12),
        (Size(commits=50, archived=True), 10),
        (Size(groups=5), 14),
        (Size(rows=50), 500),
    ],
    ids=["partitions", "archived", "groups", "rows"],
)
def test_tables_that_are_grown_fast_are_whole(kind: Kind, size: Size, rows: int, tmp_path: Path) -> None:
    make(tmp_path, kind, size)
    answer = read(HudiTable.open(tmp_path), ReadRequest()).to_arrow()
    assert answer.num_rows == rows
    assert answer["_hoodie_partition_path"].to_pylist() == answer["part"].to_pylist()
    assert answer["_hoodie_record_key"].to_pylist() == answer["id"].to_pylist()
    checked = CliRunner().invoke(app, ["fsck", str(tmp_path), "-o", "json"])
    assert (checked.exit_code, checked.stdout.strip()) == (0, "[]"), checked.output
