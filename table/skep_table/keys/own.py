"""Key generators of one's own: found by entry point under the class name that the table's settings give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, Protocol

import pyarrow as pa

from skep_format.errors import UnsupportedError
from skep_format.table_config.keys import simple_name
from skep_table.plug_ins import plug_in

GROUP: Final = "skep.key_generators"


class OwnKeyGenerator(Protocol):
    """Makes keys and paths from whole columns. Rows have the table's columns, in its types."""

    def record_keys(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """Text; null or empty where a row has no key."""

    def partition_paths(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """Text, not null: the folder of each row, `""` for the table's own."""


Factory = Callable[[Mapping[str, str]], OwnKeyGenerator]
"""What an entry point of the group `skep.key_generators` is: from the table's settings and the write's options."""


def has_own(name: str) -> bool:
    """Whether a generator is registered as `name`: a class name, or the last part of one."""
    return _find(name) is not None


def make_own(name: str, properties: tuple[tuple[str, str], ...]) -> OwnKeyGenerator:
    """UnsupportedError when there is none of the name."""
    factory = _find(name)
    if factory is None:
        raise UnsupportedError(
            f"there is no key generator {name}",
            hint=f"Hudi's own are built in; register others as entry points of group {GROUP!r}",
            found=name,
        )
    return factory(dict(properties))


@lru_cache(maxsize=64)
def _find(name: str) -> Factory | None:
    found: Factory | None = plug_in(GROUP, name, simple_name(name))
    return found
