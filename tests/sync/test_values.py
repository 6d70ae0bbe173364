"""Partition paths to values and names, by every extractor of Hudi's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_catalog.entities import partition_name, values_of_name
from skep_format.errors import FormatError
from skep_format.escaping import escape
from skep_format.names import DEFAULT_PARTITION
from skep_sync.values import Extractor, partition_values


class TestExtractors:
    @pytest.mark.parametrize(
        ("extractor", "path", "values"),
        [
            (Extractor.NON_PARTITIONED, "", ()),
            (Extractor.MULTI_PART, "a=1/b=x", ("1", "x")),
            (Extractor.MULTI_PART, "1/x", ("1", "x")),
            (Extractor.SINGLE_PART, "2024/03/07", ("2024-03-07",)),
            (Extractor.SINGLE_PART, "k=v", ("k=v",)),
            (Extractor.HIVE_STYLE, "day=2024-03-07", ("2024-03-07",)),
            (Extractor.SLASH_ENCODED_DAY, "2024/03/07", ("2024-03-07",)),
            (Extractor.SLASH_ENCODED_DAY, "y=2024/m=03/d=07", ("2024-03-07",)),
            (Extractor.SLASH_ENCODED_HOUR, "2024/03/07/21", ("2024-03-07-21",)),
        ],
    )
    def test_values(self, extractor: Extractor, path: str, values: tuple[str, ...]) -> None:
        assert extractor.values(path, decode=False) == values

    @pytest.mark.parametrize(
        ("extractor", "path"),
        [
            (Extractor.MULTI_PART, "a=1=2"),
            (Extractor.HIVE_STYLE, "a=1/b=2"),
            (Extractor.HIVE_STYLE, "1"),
            (Extractor.SLASH_ENCODED_DAY, "2024/03"),
            (Extractor.SLASH_ENCODED_HOUR, "2024/03/07"),
        ],
    )
    def test_a_path_that_does_not_fit_is_named(self, extractor: Extractor, path: str) -> None:
        with pytest.raises(FormatError, match=f"partition path '{path}' does not fit {extractor.value}"):
            extractor.values(path, decode=False)

    @pytest.mark.parametrize(
        "text",
        [
            "org.apache.hudi.hive.MultiPartKeysValueExtractor",
            "multi_part",
            "MultiPartKeysValueExtractor",
            " MULTI_PART ",
        ],
    )
    def test_by_class_or_short_name(self, text: str) -> None:
        assert Extractor.of(text) is Extractor.MULTI_PART

    def test_an_unknown_class_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(ValueError, match="one of MultiPart"):
            Extractor.of("com.example.Mine")

    def test_inferred_as_hudi_does(self) -> None:
        assert Extractor.fitting(0, hive_style=True) is Extractor.NON_PARTITIONED
        assert Extractor.fitting(1, hive_style=True) is Extractor.HIVE_STYLE
        assert Extractor.fitting(1, hive_style=False) is Extractor.SINGLE_PART
        assert Extractor.fitting(2, hive_style=True) is Extractor.MULTI_PART


class TestValues:
    def test_count_must_be_that_of_the_keys(self) -> None:
        with pytest.raises(FormatError, match=r"has 2 values by MultiPart.*, the table 3 partition keys \(a, b, c\)"):
            partition_values("1/2", Extractor.MULTI_PART, ["a", "b", "c"], decode=False)

    def test_empty_and_default(self) -> None:
        assert partition_values("k=", Extractor.HIVE_STYLE, ["k"], decode=False) == (DEFAULT_PARTITION,)
        path = f"k={DEFAULT_PARTITION}"
        assert partition_values(path, Extractor.HIVE_STYLE, ["k"], decode=True) == (DEFAULT_PARTITION,)

    @given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=3))
    def test_an_encoded_path_gives_the_values_back(self, values: list[str]) -> None:
        keys = [f"k{i}" for i in range(len(values))]
        path = "/".join(f"{key}={escape(value)}" for key, value in zip(keys, values, strict=True))
        assert partition_values(path, Extractor.MULTI_PART, keys, decode=True) == tuple(values)

    @given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=3))
    def test_a_name_gives_the_values_back(self, values: list[str]) -> None:
        assert values_of_name(partition_name([f"K{i}" for i in range(len(values))], values)) == tuple(values)

    def test_names_are_spelt_as_hive_does(self) -> None:
        assert partition_name(["City", "t"], ["a/b=c", "12:30 ü"]) == "city=a%2Fb%3Dc/t=12%3A30 ü"
        assert partition_name(["k"], [""]) == f"k={DEFAULT_PARTITION}"
