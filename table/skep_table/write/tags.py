"""Where the keys of rows are.

The tag of a row is the position of the file that holds its key among the candidate files of its partition, or a code.
Its position is the number of the row with that key in the file, or a code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import Self

Tags = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]

NEW_KEY: Final = -1
"""No file holds the key."""
MISSING_GROUP: Final = -(2**31)
"""The row names the file group that it was read from, and the partition has no such group."""

NOT_HELD: Final = -1
"""The file holds no row with the key."""
SEVERAL: Final = -2
"""The file holds several."""
HELD: Final = -3
"""The file may hold the key, and it is not known in which row."""
DELETED: Final = -4
"""The file holds the key, in a row that its logs delete."""


@dataclass(frozen=True, slots=True)
class Located:
    """The tags of some rows, and their positions where the index looks for them."""

    tags: Tags
    positions: Positions | None = None

    @classmethod
    def new(cls, rows: int) -> Self:
        """Of rows whose keys no file holds."""
        return cls(np.full(rows, NEW_KEY, np.int32))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Of all rows of the parts, one after the other."""
        tags = np.concatenate([each.tags for each in parts])
        return cls(tags, positions_joined([(each.tags, each.positions) for each in parts]))

    def of(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64] | slice) -> Self:
        """Of some of the rows."""
        return type(self)(self.tags[rows], None if self.positions is None else self.positions[rows])


def positions_joined(parts: Sequence[tuple[npt.NDArray[Any], Positions | None]]) -> Positions | None:
    """The positions of all parts, which come with the tags, or the numbers of files, of their rows; None of none."""
    if all(positions is None for _, positions in parts):
        return None
    return np.concatenate([unread(files) if positions is None else positions for files, positions in parts])


def unread(files: npt.NDArray[Any]) -> Positions:
    """The positions of rows of which only the files are known."""
    return np.where(files >= 0, HELD, NOT_HELD)


def tag_of_new_group(number: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The tags of rows for groups that a partition does not have yet, which the index knows by number."""
    return NEW_KEY - 1 - number


def number_of_new_group(tag: int) -> int:
    """The number behind a tag of `tag_of_new_group`."""
    return NEW_KEY - 1 - tag
