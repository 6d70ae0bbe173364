"""Flags and properties: Hudi's spellings, what counts over what, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep_format.errors import OptionError, UnsupportedError
from skep_stream.flags import FLAGS, Flags, FlagWarning, parse
from skep_stream.properties import layered, load_properties

REQUIRED = ["--target-base-path", "t", "--target-table", "t", "--table-type", "COPY_ON_WRITE"]


def test_flags_are_read_as_they_are_written() -> None:
    flags = Flags.of(
        parse([*REQUIRED, "--source-limit", "10", "--hoodie-conf", "a=1", "--hoodie-conf=b=2=3", "--continuous"])
    )
    assert flags.number("source_limit") == 10
    assert flags.pairs() == {"a": "1", "b": "2=3"}
    assert flags.has("continuous")
    assert not flags.has("filter_dupes")
    assert flags.text("op") == "UPSERT"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*REQUIRED, "--op", "UPSERT", "--op", "INSERT"], "--op can be given only once"),
        ([*REQUIRED, "--source-clas", "x"], "did you mean --source-class"),
        ([*REQUIRED, "--op"], "--op needs a value"),
        ([*REQUIRED, "--source-limit", "ten"], "--source-limit: 'ten' is not a whole number"),
        (REQUIRED[:2], "--target-table is required"),
    ],
)
def test_wrong_flags_are_refused_by_name(words: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Flags.of(parse(words))


def test_flags_that_are_not_built_are_refused_and_idle_ones_are_named() -> None:
    with pytest.raises(UnsupportedError, match="--bootstrap-overwrite is not built"):
        Flags.of(parse([*REQUIRED, "--bootstrap-overwrite"]))
    with pytest.warns(FlagWarning, match="--enable-hive-support has no effect"):
        Flags.of(parse([*REQUIRED, "--enable-hive-support"]))


def test_each_flag_is_there_once() -> None:
    assert len({flag.name for flag in FLAGS}) == len(FLAGS)
    assert len({flag.argument for flag in FLAGS}) == len(FLAGS)


def test_later_lines_count_and_files_are_included_where_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "more.properties").write_text("a=base\nb=base\nc=base\n")
    (tmp_path / "job.properties").write_text(
        "# a=comment\na=job\n include=base/more.properties\nb = job = 1\nno line\n"
    )
    found = load_properties(f"file://{tmp_path}/job.properties")
    assert found == {"a": "base", "b": "job = 1", "c": "base"}


def test_a_loop_of_files_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("include=b\n")
    (tmp_path / "b").write_text("include=a\n")
    with pytest.raises(OptionError, match="which includes it"):
        load_properties(f"{tmp_path}/a")
    with pytest.raises(OptionError, match="c is not there"):
        load_properties(f"{tmp_path}/c")


def test_an_older_key_counts_where_the_newer_is_missing(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("hoodie.streamer.source.dfs.root=new\nhoodie.deltastreamer.source.dfs.root=old\n")
    found = load_properties(f"{tmp_path}/job")
    assert found == {"hoodie.streamer.source.dfs.root": "new"}
    over = layered(found, {"hoodie.deltastreamer.source.dfs.root": "given"})
    assert over == {"hoodie.streamer.source.dfs.root": "given"}
