"""Plain English: docstrings, comments, messages, names and pages use the ordinary words of engineering.

A scan for the words of a private idiom: each entry of IDIOM has the ordinary word in its place. It reads docstrings and
other string literals of more than one word, comments, the names that the code binds, and the Markdown pages.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from source_tree import ROOT

IDIOM = {
    r"tells?|telling|told": "reports, detects, distinguishes",
    r"says?|saying|said": "states, contains, specifies",
    r"(has|have|had) (no )?words? for": "defines, supports",
    r"(what|whatever) [\w' ]{1,30} asks? of|asked of|ask(s|ed)? \w+ of": "calls, queries, requests",
    r"(a|an|one|its|their|the|this|that|each|first|last|pure|second) looks?(?!-)": "snapshot, listing",
    r"living|still lives?|may live": "active, running",
    r"dated? back|dates (it|them)? ?back|dating back": "backdated",
    r"gone": "deleted, missing",
    r"accounts?": "commit metadata, totals",
    r"(know|knows|knew|known) of": "knows, has, finds",
    r"whoever": "the next executor, another process",
    r"(take|takes|took|taken|taking) (\w+ ){0,3}away": "deletes, removes",
    r"put(s|ting)?( \w+)? together": "combined, composed",
    r"at work": "active, running",
    r"hangs?|hung|hanging": "blocks, registers",
    r"(stands?|stood|standing)(?! for| in for|[- ]?alone)": "remains, is",
    r"(make|makes|made|making) up for": "retried, repeated",
    r"learn(s|t)": "reads, finds",
    r"flow's script|is the script": "defines the steps",
    r"begun": "started",
    r"(is|are) there twice": "occurs twice",
    r"made again": "rebuilt",
    r"this is no": "not a",
    r"unheard": "ignored",
    r"speaks? against": "rules out",
    r"so many of": "this number of",
    r"hears?|heard": "receives, is notified",
    r"anew": "again, re-",
    r"(go|goes|went|going) by(?! way)": "uses, is decided by",
    r"bears?|borne": "has",
    r"answer(s|ed)? (whether|whose|how many|the (id|instant|options|stats|file|path))": "returns",
}
NAMES = r"tells?|telling|told|says?|saying|said|gone|whoever|accounts?|living|learnt|begun|anew"
PATTERN = re.compile(rf"\b(?:{'|'.join(IDIOM)})\b", re.IGNORECASE)
NAME_PATTERN = re.compile(rf"(?:^|_)(?:{NAMES})(?=_|$)", re.IGNORECASE)

LEGITIMATE = (
    r"(storage|service|aws|azure|gcs)[ _-]accounts?|account[_ ](key|name|url|id)\b",  # object stores' own term
)
"""What the scan leaves out, each with its reason."""
FILE_METHODS = {"tell"}  # of io.IOBase
SKIPPED_FILES = {"tests/house/test_plain_english.py"}  # names the words


def cleaned(text: str) -> str:
    """The text on one line, without what is legitimate."""
    text = re.sub(r"\s+#? ?", " ", text)
    for pattern in LEGITIMATE:
        text = re.sub(pattern, "…", text, flags=re.IGNORECASE)
    return text


def findings(text: str) -> list[str]:
    """The words of the idiom in a piece of prose, each with what surrounds it."""
    text = cleaned(text)
    return [text[max(0, hit.start() - 40) : hit.end() + 30].strip() for hit in PATTERN.finditer(text)]


def snake(name: str) -> str:
    """`SliceAccount` → `slice_account`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def strings(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """String literals of more than one word, f-strings as one."""
    inside: set[int] = set()
    for node in nodes:
        text = None
        if isinstance(node, ast.JoinedStr):
            inside.update(id(value) for value in node.values)
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        if text and re.search(r"\w\s+\w", text):
            yield node.lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments, those on neighbouring lines as one."""
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != last + 1:
            yield start, " ".join(block)
            block = []
        start = start if block else token.start[0]
        block.append(token.string.lstrip("# "))
        last = token.start[0]
    if block:
        yield start, " ".join(block)


def bound_names(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Each name that the code binds, where it does so first: functions, classes, parameters, variables, attributes."""
    seen: set[str] = set()
    for node in nodes:
        name = ""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        if name and name not in seen:
            seen.add(name)
            yield getattr(node, "lineno", 0), name


def in_python(source: str) -> Iterator[tuple[int, str]]:
    """Line and surroundings of each word of the idiom in a Python file."""
    if not PATTERN.search(cleaned(source)) and not re.search(NAMES, source, re.IGNORECASE):
        return  # most files: parsing each takes seconds in all
    nodes = list(ast.walk(ast.parse(source)))
    for line, text in [*strings(nodes), *comments(source)]:
        yield from ((line, found) for found in findings(text))
    for line, name in bound_names(nodes):
        if name not in FILE_METHODS and NAME_PATTERN.search(snake(name)) and not re.search(LEGITIMATE[0], snake(name)):
            yield line, f"name {name}"


def in_page(source: str) -> Iterator[tuple[int, str]]:
    """The same for a Markdown page."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", source), 1):
        yield from ((number, found) for found in findings(paragraph))


FOLDERS = (
    "format",
    "table",
    "catalog",
    "writer",
    "sync",
    "sql",
    "stream",
    "skep",
    "tests",
    "testrun",
    "benchmarks",
    "mutants",
    "docker",
    "docs",
)


def files() -> Iterator[Path]:
    """Every Python file and page of the project."""
    for folder in FOLDERS:
        yield from sorted(path for end in ("*.py", "*.md") for path in (ROOT / folder).rglob(end))
    yield from sorted(ROOT.glob("*.md"))
    yield ROOT / "dev"


def place(path: Path) -> str:
    """Where a file counts: packages by folder, tests by suite, everything else by its first name."""
    words = path.relative_to(ROOT).parts
    depth = {"format": 3, "table": 3, "skep": 2, "tests": 3 if words[1:2] == ("table",) else 2}.get(words[0], 1)
    return "/".join(words[: min(depth, len(words) - 1)]) or words[0]


@cache
def found() -> dict[str, list[str]]:
    """Place → what the scan finds there."""
    result: dict[str, list[str]] = defaultdict(list)
    for path in files():
        name = str(path.relative_to(ROOT))
        source = path.read_text(encoding="utf-8")
        scan = in_page if path.suffix == ".md" else in_python
        hits = [] if name in SKIPPED_FILES else [f"{name}:{line}: {text}" for line, text in scan(source)]
        result[place(path)] += hits
    return result


@pytest.mark.parametrize("where", sorted({place(path) for path in files()}))
def test_prose_is_plain(where: str) -> None:
    assert not found()[where], "\n".join(found()[where])


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""What a commit records."""', 0),
        ('"""What a commit says."""', 1),
        ("# the file is\n# gone\n", 1),
        ("# a writer that has\n# been told\n", 1),
        ('raise ValueError(f"{name} is told\\nby {other}")', 1),
        ('raise ValueError("no file " f"{name} of this account")', 1),
        ("told = 1\ntold = 2\n", 1),
        ("class SliceAccount: ...", 1),
        ("def f(said, *, account_key): ...", 1),
        ('x = {"said": 1}', 0),
        ("# an Azure storage account\n", 0),
        ("# it stands for a row; the commit stands\n", 1),
        ("# takes all of it away\n", 1),
    ],
)
def test_words_of_the_idiom_are_found(source: str, count: int) -> None:
    assert len(list(in_python(source))) == count


SAMPLES = (
    "what it tells",
    "as it says",
    "it has words for both",
    "what a reader asks of it",
    "at one look",
    "a living writer",
    "a file that is dated back",
    "the file is gone",
    "its account",
    "it knows of none",
    "whoever comes next",
    "a column is there twice",
    "it is made again",
    "this is no JSON",
    "it goes unheard",
    "what speaks against it",
    "so many of them",
    "takes the files away",
    "put them together",
    "who is at work",
    "it hangs there",
    "the commit stands",
    "made up for",
    "it learns from it",
    "the flow's script",
    "what was begun",
    "it hears of a commit",
    "made anew",
    "locks go by it",
    "files bear the time",
    "answers whether it ended",
)


@pytest.mark.parametrize("entry", IDIOM)
def test_each_entry_has_a_sample_that_it_finds(entry: str) -> None:
    assert any(re.search(rf"\b(?:{entry})\b", sample) for sample in SAMPLES)


@pytest.mark.parametrize("sample", SAMPLES)
def test_each_sample_is_found(sample: str) -> None:
    assert findings(sample)


def test_pages_are_scanned_by_paragraph() -> None:
    assert len(list(in_page("# Title\n\nThe table says\nso.\n\nA file is\ngone."))) == 2
