"""The name of a table's lock where it is made from the table's path, as two of Hudi's providers do."""

from __future__ import annotations

import re
from typing import Final

_SEED: Final = 0xFFFFFFFFDABADABA  # Java's int 0xdabadaba, widened with its sign


def name_of(base_path: str) -> str:
    """The path's 64-bit xxHash in hexadecimal, the same for `s3a://` and `s3://`.

    Writers that share the lock have to name the table by the same path, to the letter.
    """
    import xxhash

    path = re.sub("^s3a://", "s3://", base_path, flags=re.IGNORECASE)
    return xxhash.xxh64_hexdigest(path.encode(), seed=_SEED).upper()
