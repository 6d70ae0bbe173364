"""What starts engines, by itself: nothing outlives its starter, and what a machine lacks is reported."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine_launch import GUARD

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


def guarded(seconds: float) -> tuple[subprocess.Popen[str], int]:
    """A guard over a command that lasts so long, and the process that the command itself started."""
    command = [sys.executable, str(GUARD), sys.executable, "-c", FAMILY, str(seconds)]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert guard.stdout is not None
    return guard, int(guard.stdout.readline())


def wait_for_the_end_of(process: int) -> None:
    deadline = time.monotonic() + 60
    while Path(f"/proc/{process}").exists() and "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text():
        assert time.monotonic() < deadline, f"process {process} lives on"
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes as Linux shows them")
def test_a_command_ends_with_its_starter() -> None:
    guard, grandchild = guarded(600)
    assert guard.stdin is not None
    guard.stdin.close()  # as the system does for a starter that was killed
    assert guard.wait(timeout=60) == 256 - signal.SIGTERM
    wait_for_the_end_of(grandchild)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes as Linux shows them")
def test_what_a_command_leaves_behind_ends_with_it() -> None:
    guard, grandchild = guarded(0)
    assert guard.wait(timeout=60) == 0
    wait_for_the_end_of(grandchild)


@pytest.mark.parametrize(
    ("command", "starter_lives", "code"), [("false", True, 1), ("sleep 600", False, 256 - signal.SIGTERM)]
)
def test_what_no_signal_ends_is_ended_last(tmp_path: Path, command: str, starter_lives: bool, code: int) -> None:
    """Also when the starter ends at once, before the command has come to handle signals."""
    done = tmp_path / "done"
    guard = [sys.executable, str(GUARD), "--last", shlex.join(["touch", str(done)]), *shlex.split(command)]
    with subprocess.Popen(guard, stdin=subprocess.PIPE if starter_lives else subprocess.DEVNULL) as guarding:
        assert guarding.wait(timeout=60) == code
    assert done.exists()


@pytest.mark.engine("metastore-3.1.3")
@pytest.mark.parametrize(("ci", "outcome", "code"), [("", "1 skipped", 0), ("true", "1 error", 1)])
def test_what_a_machine_lacks_is_a_skip_and_on_ci_a_failure(tmp_path: Path, ci: str, outcome: str, code: int) -> None:
    """Without Maven and with nothing fetched there is no metastore."""
    one = Path(__file__).with_name("test_metastores.py")
    choice = ["--engines=metastore-3.1.3", "-k", "lock_excludes"]
    places = ["-o", f"cache_dir={tmp_path}/cache", f"--basetemp={tmp_path}/temp"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *choice, *places, str(one)],
        cwd=one.parents[2],
        env={**os.environ, "CI": ci, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "empty")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stdout
    assert outcome in ran.stdout
    assert "no Maven on this machine; the engines are fetched with mvn" in ran.stdout
