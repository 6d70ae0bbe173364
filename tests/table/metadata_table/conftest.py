"""Each release of Hudi whose metadata tables are among the golden tables."""

from __future__ import annotations

import pytest
from golden_metadata import RELEASES


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)
