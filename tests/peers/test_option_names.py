"""Every option of Hudi for the metadata table, its indexes and what uses them is known here, with its default.

As a script it writes the defaults that tests/skep compares with those of skep and with docs/defaults.md.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import skep.handles.table  # noqa: F401 - with it all options are known
from benchmarks.peers.bundle import ARTIFACT, GROUP, PeerMissing, bundle, java
from skep_format.errors import UnsupportedError
from skep_format.options import (
    REGISTRY,
    IneffectiveOptionWarning,
    Option,
    Options,
    Status,
    UnknownOptionWarning,
)

DEFAULTS = Path(__file__).parents[1] / "skep" / "hudi_defaults.tsv"
READER = Path(__file__).parent / "java/HudiOptions.java"
RELEASES = ("0.15.0", "1.0.2", "1.1.1", "1.2.0")
CLASSES = ("HoodieMetadataConfig", "HoodieIndexConfig", "HoodieIndexingConfig", "HoodieHBaseIndexConfig")
NAMES = re.compile(r"\bmetadata\.(?!sync)|\bindex\b|data\.skipping")
OF_TABLES = "HoodieTableConfig"
"""Its keys are settings in hoodie.properties, no options of reads and writes."""
OTHERS = re.compile(
    r"hoodie\.(bootstrap\.index|lance|write\.rolling|record\.size|datasource\.hive_sync|allow\.operation|table\.checksum)"
)
"""Of bootstraps, memory, commits, columns and settings: their names only have a word in common with indexes."""

DIFFERENT = {
    "hoodie.metadata.enable": "the table is left as it is: docs/defaults.md",
    "hoodie.index.type": "Hudi's default depends on the engine, for Spark it is the same",
    "hoodie.enable.data.skipping": "0.15 does so only when asked; files that can't match are never read here",
    "hoodie.metadata.index.partition.stats.enable": "as Hudi takes it: with column statistics it is true",
}


class Theirs(NamedTuple):
    """An option of Hudi's: its key, the text of its default, other keys for it, and the field that defines it."""

    key: str
    default: str
    others: tuple[str, ...]
    field: str

    @property
    def is_of_indexes(self) -> bool:
        """Whether it is for the metadata table, indexes, or reads that leave out files by them."""
        owner = self.field.partition(".")[0]
        if owner == OF_TABLES or OTHERS.match(self.key):
            return False
        return owner in CLASSES or NAMES.search(self.key) is not None


@cache
def options_of(release: str) -> list[Theirs]:
    """Those that the classes of a release define; the test is skipped where this machine can't run it."""
    try:
        jar, command = bundle(release), java()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    path = f"{jar}:{Path(spark.origin).parent / 'jars'}/*"
    done = subprocess.run([command, "-cp", path, READER, jar], capture_output=True, text=True, check=True, timeout=300)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [Theirs(key, default, tuple(filter(None, others.split(","))), field) for key, default, others, field in rows]


def of_indexes(release: str) -> Iterator[tuple[Theirs, str]]:
    """Each with each of its keys."""
    for theirs in options_of(release):
        if theirs.is_of_indexes:
            for key in (theirs.key, *theirs.others):
                yield theirs, key


def releases() -> list[Any]:
    return [pytest.param(release, marks=pytest.mark.peer(f"hudi-{release}")) for release in RELEASES]


@pytest.mark.parametrize("release", releases())
def test_all_are_honoured_or_refused_or_warned_of(release: str) -> None:
    found = list(of_indexes(release))
    assert len(found) > 90
    silent = []
    for _, key in found:
        ours = REGISTRY.find(key)
        if ours is None or not is_honoured_or_named(ours, key):
            silent.append(key)
    assert not silent, silent


def is_honoured_or_named(ours: Option[Any], key: str) -> bool:
    """Whether an option that is not supported is named by an error or by a warning that gives a reason."""
    if ours.status is Status.SUPPORTED:
        return True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            Options({key: "some text"}).check()
        except UnsupportedError as refused:
            return key in str(refused) and bool(ours.doc)
    kinds = {warning.category for warning in caught}
    return UnknownOptionWarning not in kinds and (IneffectiveOptionWarning in kinds or _was_warned_of(ours))


def _was_warned_of(ours: Option[Any]) -> bool:
    """A process is warned once; the releases have most options in common."""
    return ours.status is Status.NO_EFFECT


@pytest.mark.parametrize("release", releases())
def test_further_keys_of_an_option_are_further_keys_here(release: str) -> None:
    for theirs, key in of_indexes(release):
        assert REGISTRY.find(key) is REGISTRY.find(theirs.key), f"{key} is {theirs.key} in Hudi"


@pytest.mark.parametrize("release", releases())
def test_defaults_of_what_is_honoured_are_hudis(release: str) -> None:
    different = {}
    for theirs, key in of_indexes(release):
        ours = REGISTRY.find(key)
        assert ours is not None, key
        if ours.status is Status.SUPPORTED and not is_default(ours, theirs.default) and key not in DIFFERENT:
            different[key] = f"{theirs.default}, {ours.default} here"
    assert not different


def is_default(ours: Option[Any], text: str) -> bool:
    """Whether this is the default here. Hudi has none where it decides by other options."""
    return ours.default in ("", (), None) if text == "" else ours.parse(text) == ours.default


def defaults_of(release: str) -> str:
    """The defaults of a release's options for reads and writes, a line each: key and default, by a tab."""
    found = {f"{each.key}\t{each.default}" for each in options_of(release) if not each.field.startswith(OF_TABLES)}
    return "".join(f"{line}\n" for line in (f"# {GROUP}:{ARTIFACT}:{release}, by HudiOptions.java", *sorted(found)))


@pytest.mark.peer("hudi-0.15.0")
def test_the_defaults_that_are_kept_here_are_those_of_the_release() -> None:
    assert DEFAULTS.read_text(encoding="utf-8") == defaults_of("0.15.0")


if __name__ == "__main__":
    DEFAULTS.write_text(defaults_of("0.15.0"), encoding="utf-8")
