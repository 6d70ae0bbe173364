"""Regular expressions: what Java and Arrow may take otherwise is refused, all else is found as Python finds it."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.expressions.regexes import Regex

REFUSED = (
    "", "^", "a$", "a|b", "(a(b))", "(a)*", "(a)?", "(a)+b", "a++", "a*+", "a{2}{3}", "a{,3}", "a{3,1}", "a{", "(a",
    "a)",    r"\bword", r"\p{L}", r"\1", r"\t", r"\x41", r"\Aa", "(?i)a", "(?=a)", "(?<n>a)", "[a&&b]", "[]a]", "[^]",
    "[a",    "[z-a]", "[a-Z]", "[[:alpha:]]", "[a-c-e]", r"[\t]", "a^b", "é", "\n", "*a",
)  # fmt: skip
CHARACTERS = st.sampled_from(
    ["a", "b", "Z", "7", "-", " ", r"\.", r"\d", r"\w", r"\s", r"\D", "[a-f]", "[^0-9]", "[-.]"]
)
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "+?", "??"])
ITEMS = st.builds(str.__add__, CHARACTERS, REPEATS)
GROUPS = st.builds(
    lambda opening, sides: f"{opening}{'|'.join(sides)})",
    st.sampled_from(["(", "(?:"]),
    st.lists(st.builds("".join, st.lists(ITEMS, max_size=2)), min_size=1, max_size=2),
)
PATTERNS = st.builds(
    lambda start, items: start + "".join(items),
    st.sampled_from(["", "^"]),
    st.lists(st.one_of(ITEMS, GROUPS), min_size=1, max_size=4),
)
TEXTS = st.lists(st.one_of(st.none(), st.text("aabZ7-. \n\u00e9\U0001f381", max_size=12)), min_size=1, max_size=6)


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_may_be_taken_otherwise_is_refused(pattern: str) -> None:
    assert Regex.parse(pattern) is None


@given(PATTERNS, TEXTS)
def test_the_first_match_is_extracted(pattern: str, texts: list[str | None]) -> None:
    regex = Regex.parse(pattern)
    assert regex is not None
    assert len(regex.groups) == re.compile(pattern, re.ASCII).groups
    for group in range(len(regex.groups) + 1):
        found = [None if text is None else re.search(pattern, text, re.ASCII) for text in texts]
        expected = [
            None if text is None else match[group] if match is not None else ""
            for text, match in zip(texts, found, strict=True)
        ]
        assert regex.extracted(pa.array(texts, pa.string()), group).to_pylist() == expected


@given(PATTERNS, TEXTS)
def test_all_matches_are_replaced(pattern: str, texts: list[str | None]) -> None:
    regex = Regex.parse(pattern)
    assert regex is not None
    if not regex.takes_some:
        return
    assert re.compile(pattern, re.ASCII).match("") is None
    expected = [None if text is None else re.sub(pattern, "<>", text, flags=re.ASCII) for text in texts]
    assert regex.replaced(pa.array(texts, pa.string()), "<>").to_pylist() == expected


def test_a_point_is_no_end_of_a_line() -> None:
    regex = Regex.parse(".+")
    assert regex is not None
    ends = pa.array([f"a{end}b" for end in ("\n", "\r", "\u0085", "\u2028", "\u2029", "\v", "\u00e9")])
    assert regex.extracted(ends, 0).to_pylist() == [*["a"] * 5, "a\vb", "a\u00e9b"]
