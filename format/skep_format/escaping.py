"""How Hive and Hudi escape partition values in folder names and in the metastore's partition names."""

from __future__ import annotations

import re
from typing import Final

ESCAPED: Final = (*map(chr, range(0x01, 0x20)), "\x7f", *"\"#%'*/:=?\\{[]^")
NEEDS_ESCAPE: Final = r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
_ESCAPES: Final = re.compile(NEEDS_ESCAPE)
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")


def escape(value: str) -> str:
    """One partition value as Hudi's URL encoding writes it."""
    return _ESCAPES.sub(lambda match: f"%{ord(match[0]):02X}", value)


def unescape(text: str) -> str:
    """The value behind an escaped text; `%` that starts no escape stays."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text) if "%" in text else text
