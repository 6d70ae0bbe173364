"""`./dev mutants [NAME…]`: whether the tests that a commit runs find faults that are put into the code one by one.

`mutants.toml` lists the faults, each with the tests that should find it. Other arguments go to pytest: with `--all` the
tests run whole. Nothing is changed in the tree: copies of it are, two at a time. A fault that nothing finds fails no
run, it asks for a test.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).parents[1]
WORKERS: Final = 2
MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 1 << 30
LIMIT_SECONDS: Final = 300
PACKAGES: Final = ("format", "table", "catalog", "writer", "sync", "sql", "stream", ".")


class VoidError(Exception):
    """The run shows nothing: a text to replace is missing, or tests fail without any fault."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: in `file` the text `found` `becomes` another, which `breaks` what the sentence states.

    `needs`: why only tests with Spark or a metastore can find it.
    """

    name: str
    breaks: str
    file: str
    found: str
    becomes: str
    tests: tuple[str, ...]
    needs: str = ""

    def applied(self, root: Path) -> str:
        """The file's text with the fault. VoidError where the text to replace is not there, or more than once."""
        text = (root / self.file).read_text(encoding="utf-8")
        if (times := text.count(self.found)) != 1:
            raise VoidError(f"{self.name}: {self.file} has its text {times} times, not once: {self.found!r}")
        return text.replace(self.found, self.becomes)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tests did: `failed` names the first that failed, None where all passed."""

    failed: str | None
    seconds: float


def load(names: Sequence[str] = ()) -> list[Mutant]:
    """The mutants of these names; without names all."""
    listed = tomllib.loads((ROOT / "mutants" / "mutants.toml").read_text(encoding="utf-8"))
    every = {name: Mutant(name, **{**facts, "tests": tuple(facts["tests"])}) for name, facts in listed.items()}
    if unknown := [name for name in names if name not in every]:
        raise VoidError(f"no mutant {', '.join(unknown)}; there are: {', '.join(every)}")
    return [every[name] for name in names or every]


class Copy:
    """A copy of the files that git knows or would add, for one worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def test(self, tests: Sequence[str], arguments: Sequence[str], limit: float | None = None) -> Outcome:
        """Runs tests until the first that fails; those that block for `limit` seconds fail. VoidError for no tests."""
        start = time.monotonic()
        paths = os.pathsep.join(str(self.folder / package) for package in PACKAGES)
        # As on CI: the same examples each time. pytest's cache, for unpacked golden tables, is the copy's own.
        env = {**os.environ, "PYTHONPATH": paths, "CI": "true"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--timeout=120", *arguments, *tests]
        try:
            run = subprocess.run(
                command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return Outcome("tests that end", time.monotonic() - start)
        seconds = time.monotonic() - start
        if run.returncode == 0:
            return Outcome(None, seconds)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - |$)", run.stdout, re.MULTILINE)
        if run.returncode == 1 and failed:
            return Outcome(failed[1], seconds)
        if "+ Timeout +" in run.stderr + run.stdout:  # pytest-timeout ends the process where a thread blocks
            return Outcome("a test that ends", seconds)
        raise VoidError(
            f"pytest {' '.join(tests)} ended with {run.returncode}:\n{run.stdout[-3000:]}{run.stderr[-1000:]}"
        )

    @contextmanager
    def with_fault(self, mutant: Mutant) -> Iterator[None]:
        """The copy with the fault in it."""
        path = self.folder / mutant.file
        before, faulty = path.read_text(encoding="utf-8"), mutant.applied(self.folder)
        self._write(path, faulty)
        try:
            yield
        finally:
            self._write(path, before)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        # Python knows an outdated cache by size and second: the text before may have both.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def run(mutants: Sequence[Mutant], arguments: Sequence[str], folder: Path) -> list[tuple[Mutant, Outcome]]:
    """Each mutant with what its tests did, after they have passed without it."""
    for mutant in mutants:
        mutant.applied(ROOT)
    copies = [Copy(folder / str(number)) for number in range(WORKERS)]
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def unchanged(copy: Copy, tests: Sequence[str]) -> Outcome:
        return copy.test(tests, arguments) if tests else Outcome(None, 0)

    def mutated(mutant: Mutant) -> Outcome:
        copy = free.get()
        try:
            with copy.with_fault(mutant):
                outcome = copy.test(mutant.tests, arguments, LIMIT_SECONDS)
        finally:
            free.put(copy)
        log(f"{mutant.name}: {'NOT FOUND' if outcome.failed is None else 'found'} in {outcome.seconds:.0f} s")
        return outcome

    tests = sorted({test for mutant in mutants for test in mutant.tests})
    shares = [tests[number::WORKERS] for number in range(WORKERS)]
    log(f"the tests of {len(mutants)} mutants without any of them")
    with ThreadPoolExecutor(WORKERS) as pool:
        if failed := [outcome.failed for outcome in pool.map(unchanged, copies, shares) if outcome.failed]:
            raise VoidError(f"without any fault tests fail: {', '.join(failed)}")
        return list(zip(mutants, pool.map(mutated, mutants), strict=True))


def log(text: str) -> None:
    """To the one who waits."""
    print(f"mutants: {text}", file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    """0 whatever was found, 1 where the run is void."""
    in_memory = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    arguments = [word for word in words if word.startswith("-")]
    with tempfile.TemporaryDirectory(prefix="skep-mutants-", dir=MEMORY if in_memory else None) as folder:
        try:
            outcomes = run(load([word for word in words if word not in arguments]), arguments, Path(folder))
        except VoidError as error:
            log(f"void: {error}")
            return 1
    wide = max(len(mutant.name) for mutant, _ in outcomes)
    for mutant, outcome in outcomes:
        print(f"{mutant.name:<{wide}}  {outcome.seconds:4.0f} s  {outcome.failed or f'NOT FOUND: {mutant.breaks}'}")
    print(f"{sum(outcome.failed is not None for _, outcome in outcomes)} of {len(outcomes)} found")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
