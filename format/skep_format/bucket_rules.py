"""Numbers of buckets by partition: rules over partition paths, and Hudi's file of them (`<instant>.hashing_config`).

The first rule whose pattern is found in a path decides, else the default. The newest file counts whose instant is not
pending; the first one is made with the table, each rescaling writes another.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from skep_format.errors import CorruptFileError, OptionError
from skep_format.hashing_metadata import FIRST, INDEX_FOLDER, document_bytes
from skep_format.instant_time import InstantTime
from skep_format.names import join

FOLDER: Final = f"{INDEX_FOLDER}/partition_bucket_index_meta/configs"
EXPRESSIONS: Final = "hoodie.bucket.index.partition.expressions"
REGEX: Final = "regex"
_SUFFIX: Final = ".hashing_config"
_VERSION: Final = 1
# What Java's patterns have inside of brackets, and Python's read otherwise.
_NESTED: Final = re.compile(r"(?<!\\)\[[^\]]*(?:&&|\[)")


@dataclass(frozen=True, slots=True)
class BucketRules:
    """How many buckets a partition has. `expressions`: `pattern,number` by `;`, in Java's spelling of patterns; empty
    where all partitions have the same number."""

    default: int
    expressions: str = ""
    rules: tuple[tuple[re.Pattern[str], int], ...] = ()

    @classmethod
    def parse(cls, default: int, expressions: str) -> BucketRules:
        """OptionError for what is no rule, and for a pattern that Python's expressions can't stand for."""
        parts = expressions.split(";") if expressions else []
        while parts and not parts[-1]:
            parts.pop()  # as Java splits
        return cls(default, expressions, tuple(map(_rule, parts)))

    @classmethod
    def decode(cls, data: bytes, path: str) -> BucketRules:
        """CorruptFileError, with the path, for anything that is not such a file."""
        try:
            found = json.loads(data)
            rule, default = str(found["rule"]), int(found["defaultBucketNumber"])
            if rule.lower() != REGEX or default < 1:
                raise ValueError(f"rule {rule}, {default} buckets")
            return cls.parse(default, str(found["expressions"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError.of_file(path, f"no rules for numbers of buckets: {error}") from error

    def encode(self, instant: InstantTime = FIRST) -> bytes:
        """The bytes of the file of an instant."""
        document = {
            "expressions": self.expressions,
            "defaultBucketNumber": self.default,
            "rule": REGEX,
            "version": _VERSION,
            "instant": instant,
        }
        return document_bytes(document)

    def number(self, partition_path: str) -> int:
        """How many buckets a partition has."""
        for pattern, number in self.rules:
            if pattern.search(partition_path):
                return number
        return self.default


def rules_path(instant: InstantTime = FIRST) -> str:
    """The file of an instant."""
    return join(FOLDER, f"{instant}{_SUFFIX}")


def instant_of(name: str) -> InstantTime | None:
    """The instant of a file of rules; None for another file."""
    return InstantTime(name.removesuffix(_SUFFIX)) if name.endswith(_SUFFIX) else None


def _rule(text: str) -> tuple[re.Pattern[str], int]:
    pattern, *numbers = text.strip().rstrip(",").split(",")
    try:
        (number,) = (int(each) for each in numbers)
        if number < 1:
            raise ValueError("a partition has at least one bucket")
        if _NESTED.search(pattern):
            raise ValueError("classes in classes are not supported")
        return re.compile(pattern.strip(), re.ASCII), number
    except (ValueError, re.error) as error:
        raise OptionError(
            f"option {EXPRESSIONS}: {text!r} is not `pattern,number`: {error}", option=EXPRESSIONS, found=text
        ) from error
