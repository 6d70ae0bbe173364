"""Statements on tables whose partitions are made from times, with as few settings as Hudi 0.15 stores of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.lake import Lake
from skep_format.errors import OptionError

KIND = "hoodie.keygen.timebased.timestamp.type"
TYPES = "hoodie.datasource.write.partitionpath.field"
PATTERN = "hoodie.keygen.timebased.output.dateformat"
KINDS = {  # generator → what the table was made with, and what of it Hudi 0.15 does not store
    "TIMESTAMP": ({KIND: "EPOCHMILLISECONDS", PATTERN: "yyyy"}, (KIND,)),
    "CUSTOM": ({KIND: "EPOCHMILLISECONDS", PATTERN: "yyyy", TYPES: "at:timestamp"}, (KIND, PATTERN, TYPES)),
}


def made_by_hudi(lake: Lake, kind: str, generator: str) -> dict[str, str]:
    """A table `t` of one row, with what Hudi 0.15 keeps of its settings; gives those that it does not keep."""
    settings, lost = KINDS[generator]
    properties = {**settings, "hoodie.datasource.write.keygenerator.type": generator}
    lake.sql(
        f"CREATE TABLE t (id STRING, v INT, ts BIGINT, at BIGINT) USING hudi PARTITIONED BY (at)"
        f" TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts', type = '{kind}',"
        + ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        + ")"
    )
    lake.sql("INSERT INTO t VALUES ('a', 1, 1, 0), ('b', 1, 1, 0)")
    file = Path(lake.table("t").path.removeprefix("file:"), ".hoodie", "hoodie.properties")
    kept = [line for line in file.read_text().splitlines() if not line.startswith(lost)]
    file.write_text("\n".join(kept).replace("at\\:timestamp", "at"))
    return {key: settings[key] for key in lost}


def rows(lake: Lake) -> list[tuple[str, int, str]]:
    found = lake.table("t").read().to_arrow()
    return sorted(zip(*(found[name].to_pylist() for name in ("id", "v", "_hoodie_partition_path")), strict=True))


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("generator", KINDS)
@pytest.mark.parametrize("by", ["SET", "property"])
def test_what_hudi_does_not_store_comes_from_the_session_or_the_entry(
    lake: Lake, kind: str, generator: str, by: str
) -> None:
    lost = made_by_hudi(lake, kind, generator)
    lake.sql("UPDATE t SET v = 2 WHERE id = 'a'")  # rows bring their path
    lake.sql("DELETE FROM t WHERE id = 'b'")
    with pytest.raises(OptionError, match=r"table t: .*(timestamp\.type|CUSTOM)"):
        lake.sql("INSERT INTO t VALUES ('c', 1, 1, 31536000000)")
    assert rows(lake) == [("a", 2, "at=1970")]
    if by == "SET":
        for key, value in lost.items():
            lake.sql(f"SET {key}={value}")
    else:
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in lost.items())
        lake.sql(f"ALTER TABLE t SET TBLPROPERTIES ({listed})")
    lake.sql("INSERT INTO t VALUES ('c', 1, 1, 31536000000)")
    lake.sql(
        "MERGE INTO t USING (SELECT 'c' AS id, 7 AS v, 9L AS ts, 31536000000L AS at) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET v = s.v, ts = s.ts WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(lake) == [("a", 2, "at=1970"), ("c", 7, "at=1971")]
