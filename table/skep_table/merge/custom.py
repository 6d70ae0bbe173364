"""Custom mergers: Python functions found by entry point, for tables whose merge mode is CUSTOM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol

import pyarrow as pa

from skep_format.errors import OptionError, UnsupportedError
from skep_format.options import comma_list, option
from skep_format.table_config.keys import simple_name
from skep_table.plug_ins import plug_in

GROUP: Final = "skep.mergers"
_no_names: tuple[str, ...] = ()
MERGER = option("skep.merger", str, "", "Entry point (group skep.mergers) that merges tables of merge mode CUSTOM")
IMPLEMENTATIONS = option(
    "hoodie.write.record.merge.custom.implementation.classes",
    comma_list,
    _no_names,
    "Versions 8 and 9: entry points of group skep.mergers; the one with the table's strategy id merges its rows",
)


class Merger(Protocol):
    """Merges rows pairwise: row i of `old` and row i of `new` have the same key, `new` arrived later.

    The result has as many rows, in the same order, with the columns of `new`. A row of it whose
    `_hoodie_is_deleted` is true, where that column exists, is a delete. An attribute `strategy_id` names the merge
    strategy that the function carries out, as tables of version 8 and 9 record it.
    """

    def __call__(self, old: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch: ...


@lru_cache(maxsize=64)
def find_merger(name: str) -> Merger:
    """The merger registered as `name`, a strategy id, a class name or the last part of one.

    UnsupportedError when there is none.
    """
    merger: Merger | None = plug_in(GROUP, name, simple_name(name))
    if merger is not None:
        return merger
    raise UnsupportedError(
        f"rows of this table are merged by {name}, which is not built in",
        hint=f"register a function in entry point group {GROUP!r} as {name!r}, or name one by option {MERGER.key}",
        merger=name,
    )


def own_mergers(names: Sequence[str]) -> tuple[str, ...]:
    """Without Hudi's own classes: what they do is built in, by the merge mode."""
    return tuple(name for name in names if not name.startswith("org.apache.hudi."))


def strategy_of(name: str) -> str | None:
    """The id of the merge strategy that a merger states, if it does."""
    found: str | None = getattr(find_merger(name), "strategy_id", None)
    return found


def merger_of(strategy_id: str, names: Sequence[str]) -> str:
    """Which of the mergers `names` carries out a strategy: the one that states it, or the only one if it states none.

    Without names, a merger that is registered under the id itself. OptionError where none of the names fits.
    """
    if not names:
        return strategy_id
    stated = {name: strategy_of(name) for name in names}
    for name, found in stated.items():
        if found == strategy_id or (found is None and len(names) == 1):
            return name
    shown = ", ".join(f"{name} ({found or 'states none'})" for name, found in stated.items())
    raise OptionError(
        f"{IMPLEMENTATIONS.key}: none carries out merge strategy {strategy_id}: {shown}",
        hint="a merger states its strategy by an attribute strategy_id",
        option=IMPLEMENTATIONS.key,
        found=tuple(names),
        expected=strategy_id,
    )
