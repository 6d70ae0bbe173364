"""The page on how skep's entries differ from Hudi's lists all that the comparison allows for."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def test_the_page_lists_what_the_comparison_allows() -> None:
    page = (ROOT / "docs" / "sync-and-hudi.md").read_text(encoding="utf-8")
    listed = tomllib.loads((ROOT / "tests" / "peers" / "hive_sync_differences.toml").read_text(encoding="utf-8"))
    for difference in listed["difference"]:
        assert f"| {difference['what']} | {difference['why']} |" in page
