"""How often a statement looks the tables up that it names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep.handles.lake_tables import LakeTables
from skep.lake import Lake

ROWS = pa.table({"id": [1, 2], "n": [1, 2], "part": ["a", "b"]})
MERGE = "merge into t using {source} on t.id = s.id when matched then update set * when not matched then insert *"


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()
    entry = LakeTables.entry

    def counted(self: LakeTables, name: Any) -> Any:
        counts[name.name] += 1
        return entry(self, name)

    monkeypatch.setattr(LakeTables, "entry", counted)
    return counts


@pytest.mark.metastore
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("update t set n = n + 1 where id = 1", {"t": 1}),
        ("delete from t where n = 1", {"t": 1}),
        ("insert into t select * from source", {"t": 1, "source": 1}),
        (MERGE.format(source="source s"), {"t": 1, "source": 1}),
        (MERGE.format(source="(select * from source where id in (select id from t)) s"), {"t": 2, "source": 1}),
        ("select * from t a join source b on a.id = b.id join t c on a.id = c.id", {"t": 1, "source": 1}),
    ],
)
def test_each_table_is_looked_up_once_a_snapshot(
    metastore: Any, database: str, tmp_path: Path, looked_up: Counter[str], statement: str, expected: dict[str, int]
) -> None:
    lake = Lake(metastore, str(tmp_path / "lake"), database=database)
    for name in ("t", "source"):
        lake.create_table(name, ROWS, key="id", partition_by="part").upsert(ROWS)
    looked_up.clear()
    lake.sql(statement)
    assert looked_up == expected
