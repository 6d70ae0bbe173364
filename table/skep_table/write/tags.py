"""Tags: by row, the position of the file that holds its key among the candidate files of its partition, or a code."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Tags = npt.NDArray[np.int32]

NEW_KEY: Final = -1
"""No file holds the key."""
MISSING_GROUP: Final = -(2**31)
"""The row names the file group that it was read from, and the partition has no such group."""


def tag_of_new_group(number: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The tags of rows for groups that a partition does not have yet, which the index knows by number."""
    return NEW_KEY - 1 - number


def number_of_new_group(tag: int) -> int:
    """The number behind a tag of `tag_of_new_group`."""
    return NEW_KEY - 1 - tag
