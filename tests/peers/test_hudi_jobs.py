"""Jobs written for Hudi read the same rows with Hudi's jar and, unchanged, with skep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.bundle import bundle, java

JOBS = Path(__file__).parent / "hudi_jobs"
RELEASE = "0.15.0"
SPARK = (
    "--master local[2] --driver-memory 2g --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2"
    " --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1"
)


def run(job: str, folder: Path, *, hudi: bool) -> list[dict[str, Any]]:
    """The steps that the job has printed, in their order."""
    folder.mkdir()
    jars = f" --jars {bundle(RELEASE)}" if hudi else ""
    done = subprocess.run(
        [sys.executable, *([] if hudi else ["-m", "skep.run_job"]), str(JOBS / f"{job}.py"), str(folder / "data")],
        cwd=folder,
        env={
            **os.environ,
            "JAVA_HOME": str(java().resolve().parents[1]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{SPARK}{jars} pyspark-shell",
            "XDG_CONFIG_HOME": str(folder / "no-settings"),
        },
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.peer(f"hudi-{RELEASE}")
@pytest.mark.parametrize("job", ["quick_start", "statements", "streams"])
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_job_reads_the_same_with_hudi_and_with_skep(job: str, tmp_path: Path, no_jvm: None) -> None:
    theirs = run(job, tmp_path / "hudi", hudi=True)
    assert len(theirs) > 4
    assert run(job, tmp_path / "skep", hudi=False) == theirs
