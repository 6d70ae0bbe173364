"""The runbook has a line for each kind of finding, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from skep_table.services.fsck import Problem

PAGE = Path(__file__).parents[3] / "docs" / "runbook.md"


def test_the_runbook_lists_every_finding() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|[^|]+\|[^|]+\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(problem.value for problem in Problem)
