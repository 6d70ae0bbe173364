"""Runs a command that ends when this script's standard input does: however the starter ends, nothing is left behind.

Arguments: the command. Its output goes to this script's. SIGTERM first, after ten seconds SIGKILL, to its whole group.
`--last LINE` before it is what is run after it in any case: for what no signal to the command ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys

GRACE_SECONDS = 10


def main() -> int:
    # The starter's Ctrl-C is the starter's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parser = argparse.ArgumentParser()
    parser.add_argument("--last", type=shlex.split)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    parsed = parser.parse_args()
    with subprocess.Popen(parsed.command, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        while process.poll() is None:
            readable, _, _ = select.select([sys.stdin], [], [], 0.2)
            if readable and not os.read(sys.stdin.fileno(), 1):
                end(process)
        # What the command itself left in its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if parsed.last:
        quiet = subprocess.DEVNULL
        subprocess.run(parsed.last, stdin=quiet, stdout=quiet, stderr=quiet, check=False)
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
