"""Runs a command that ends when this script's standard input does: however the starter ends, nothing is left behind.

Arguments: the command. Its output goes to this script's. SIGTERM first, after ten seconds SIGKILL, to its whole group.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

GRACE_SECONDS = 10


def main() -> int:
    # The starter's Ctrl-C is the starter's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True) as process:
        while process.poll() is None:
            readable, _, _ = select.select([sys.stdin], [], [], 0.2)
            if readable and not os.read(sys.stdin.fileno(), 1):
                end(process)
        # What the command itself left in its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.returncode


def end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
