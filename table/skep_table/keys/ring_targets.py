"""Where the rows of a file group go that a resize of a hash ring replaces: by the hashes of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.errors import TableMismatchError
from skep_format.hashing_metadata import HashingMetadata, HashNode
from skep_table.keys.buckets import ring_hashes

_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class RingTargets:
    """The file groups that the rows of a planned group go to. `places`: by range of hashes the one of `file_ids`, or
    none where the range is another group's. `fields` are the hash fields in the order of the key."""

    ends: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    file_ids: tuple[str, ...]
    fields: tuple[str, ...]

    @classmethod
    def of(cls, ring: HashingMetadata, children: Sequence[HashNode], fields: tuple[str, ...]) -> RingTargets:
        """`ring` is that before the resize, `children` are the nodes of the group."""
        nodes = ring.resized(ring.instant, children).nodes
        ids = tuple(child.file_id for child in children if child.prefix)
        places = [ids.index(node.file_id) if node.file_id in ids else _NOWHERE for node in nodes]
        return cls(np.array([node.value for node in nodes], np.int64), np.array(places, np.int64), ids, fields)

    def of_keys(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """By key the position of its group in `file_ids`. TableMismatchError for one that is another group's."""
        at = np.searchsorted(self.ends, ring_hashes(keys, self.fields))
        at[at == len(self.ends)] = 0
        found = self.places[at]
        if (found == _NOWHERE).any():
            raise TableMismatchError(
                f"{int((found == _NOWHERE).sum())} rows lie in a file group that their hashes do not lead to",
                hint=f"were they written with other hash fields than {', '.join(self.fields)}?",
                found=self.file_ids,
            )
        return found
