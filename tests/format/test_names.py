"""File names of a table (format guide 4): Hudi's own are recognised and printed back, each grammar goes both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import FormatError
from skep_format.escaping import escape
from skep_format.names import (
    PARTITION_METAFILE,
    BaseFileName,
    BaseFormat,
    ExternalFileName,
    LogFileName,
    Marker,
    MarkerType,
)

FILE_IDS = st.uuids().map(lambda uuid: f"{uuid}-0") | st.from_regex(r"[a-z][a-z0-9-]{0,20}-\d{4}-0", fullmatch=True)
INSTANTS = st.from_regex(r"\d{14}(\d{3})?", fullmatch=True)
NUMBERS = st.integers(0, 10**6)
TOKENS = st.builds("{}-{}-{}".format, NUMBERS, NUMBERS, NUMBERS)
BASES = st.builds(BaseFileName, FILE_IDS, TOKENS, INSTANTS, st.sampled_from(BaseFormat))
LOGS = st.builds(
    LogFileName, FILE_IDS, INSTANTS, st.integers(1, 10**6), TOKENS, st.booleans(), st.sampled_from(("log", "archive"))
)


@given(BASES)
def test_a_base_files_name_is_read_back(name: BaseFileName) -> None:
    assert BaseFileName.parse(str(name)) == name
    assert LogFileName.parse(str(name)) is None


@given(LOGS)
def test_a_log_files_name_is_read_back(name: LogFileName) -> None:
    assert LogFileName.parse(str(name)) == name
    assert BaseFileName.parse(str(name)) is None


@given(FILE_IDS, INSTANTS, st.integers(1, 99))
def test_a_log_file_of_a_writer_without_tokens(file_id: str, instant: str, version: int) -> None:
    found = LogFileName.parse(f".{file_id}_{instant}.log.{version}")
    assert found == LogFileName(file_id, instant, version)
    assert str(found) == f".{file_id}_{instant}.log.{version}"


@given(
    st.builds(
        Marker,
        INSTANTS,
        st.sampled_from(("", "city=a b", "2024/02/29", "x.marker.y")),
        (BASES | LOGS).map(str),
        st.sampled_from(MarkerType),
    )
)
def test_a_markers_path_is_read_back(marker: Marker) -> None:
    assert Marker.parse(marker.instant_time, marker.path.split(f"{marker.instant_time}/", 1)[1]) == marker


@given(
    st.from_regex(r"[^/\0_][^/\0]{0,30}", fullmatch=True).filter(lambda name: "_fg%3D" not in name),
    INSTANTS,
    st.sampled_from(("", "bucket-0", "a/b=c")),
)
def test_names_of_files_of_other_table_formats(file: str, instant: str, folder: str) -> None:
    marked = f"{file}_{instant}" + (f"_fg%3D{escape(folder)}" if folder else "") + "_hudiext"
    found = ExternalFileName.parse(marked)
    assert found == ExternalFileName(f"{folder}/{file}" if folder else file, instant)
    assert str(found.base_file_name(marked)) == marked
    assert BaseFileName.parse(marked) is LogFileName.parse(marked) is ExternalFileName.parse(file + ".parquet") is None


@pytest.mark.parametrize("name", ["a.parquet_hudiext", "_hudiext", "a.parquet_x1_hudiext", "_20240101000000_hudiext"])
def test_a_mark_without_an_instant_is_damage(name: str) -> None:
    with pytest.raises(FormatError, match="no instant time"):
        ExternalFileName.parse(name)


@given(st.text())
def test_any_text_is_a_name_printed_alike_or_none(text: str) -> None:
    for kind in (BaseFileName, LogFileName):
        found = kind.parse(text)
        assert found is None or str(found) == text
    try:
        assert Marker.parse("20240229000000000", text).path.endswith(text)
    except FormatError:
        assert ".marker." not in text or text.rpartition(".marker.")[2] not in MarkerType.__members__


@given(st.lists(st.builds(LogFileName, st.just("a-0"), INSTANTS, st.integers(1, 200), TOKENS)))
def test_logs_of_a_slice_follow_their_instants_then_versions_as_numbers(names: list[LogFileName]) -> None:
    ordered = sorted(names, key=lambda name: name.sort_key)
    pairs = [(name.instant_time, name.version) for name in ordered]
    assert pairs == sorted(pairs)


@pytest.mark.parametrize(
    "name",
    [
        PARTITION_METAFILE,
        f"{PARTITION_METAFILE}.parquet",
        "part-00000-5ca8b3a1-c000.snappy.parquet",
        "a-0_1-2-3_20240229000000000.parquet.crc",
        ".a-0_1-2-3_20240229000000000.parquet.crc",
        ".a-0_20240229000000000.log.1_0-1-2.crc",
        ".a-0_20240229000000000.log",
        "",
    ],
)
def test_what_else_lies_in_a_partition_is_no_data_file(name: str) -> None:
    assert BaseFileName.parse(name) is None
    assert LogFileName.parse(name) is None


def test_names_that_hudi_gave_are_printed_as_they_were(golden: Path) -> None:
    seen = {BaseFileName: 0, LogFileName: 0}
    for file in golden.glob("*/*/table/**/*"):
        if not file.is_file() or "timeline" in file.parts or "archived" in file.parts:
            continue
        looks_like = BaseFileName if file.suffix in (".parquet", ".hfile") else LogFileName
        if looks_like is LogFileName and ".log." not in file.name:
            continue
        found = looks_like.parse(file.name)
        if file.name.startswith(PARTITION_METAFILE):
            assert found is None
            continue
        assert found is not None, file
        assert str(found) == file.name
        seen[looks_like] += 1
    assert min(seen.values()) > 100
