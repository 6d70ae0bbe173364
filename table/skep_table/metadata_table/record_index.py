"""Records of the record index as partition path, file id and time (format guide 7.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.escaping import unescape
from skep_table.metadata_table.keys import group_set
from skep_table.view import FileSlice

if TYPE_CHECKING:
    from typing_extensions import Self

_OF_TABLE: Final = "record-index"
_UUID_ENCODING: Final = 0
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES: Final = (8, 13, 18, 23)


@dataclass(frozen=True, slots=True)
class RecordIndexGroup:
    """A file group of the record index, with the bytes of its files.

    `partition` is the data partition whose keys it has: a partitioned index has groups for each, another one None.
    """

    partition: str | None
    size_bytes: int

    @classmethod
    def of(cls, slice_: FileSlice) -> Self:
        """What the newest slice of the group shows; guide 16.5 has the form of file ids."""
        size = slice_.base_file.size_bytes if slice_.base_file else 0
        shared = group_set(slice_.file_id)
        partition = None if shared == _OF_TABLE else unescape(shared.removeprefix(f"{_OF_TABLE}-"))
        return cls(partition, size + sum(log.size_bytes for log in slice_.log_files))


def file_ids(keys: pa.Array, records: Any) -> pa.Table:
    """Columns `record_key`, `partition_path`, `file_id`, `instant_ms`."""
    if pa.types.is_null(records.type):
        texts = pa.array([], pa.string())
        return _table(texts, texts, texts, pa.array([], pa.int64()))
    present = records.is_valid()
    keys, records = keys.filter(present), records.filter(present)
    member = {field.name: pc.struct_field(records, field.name) for field in records.type}
    packed = pc.equal(member["fileIdEncoding"], _UUID_ENCODING)
    high, low = (member[name].fill_null(0).to_numpy() for name in ("fileIdHighBits", "fileIdLowBits"))
    uuids = _uuid_texts(high, low)
    index = member["fileIndex"].fill_null(-1)
    suffix = pc.if_else(pc.less(index, 0), "", pc.binary_join_element_wise("-", index.cast(pa.string()), ""))
    ids = pc.if_else(packed, pc.binary_join_element_wise(uuids, suffix, ""), member["fileId"])
    return _table(keys, member["partitionName"], ids, member["instantTime"])


def _table(keys: pa.Array, partitions: pa.Array, ids: pa.Array, times: pa.Array) -> pa.Table:
    return pa.table({"record_key": keys, "partition_path": partitions, "file_id": ids, "instant_ms": times})


def _uuid_texts(high: npt.NDArray[np.int64], low: npt.NDArray[np.int64]) -> pa.Array:
    """The 128 bits as the usual text, lower case, with dashes."""
    count = len(high)
    raw = np.stack([high, low], axis=1).astype(">i8").view(np.uint8).reshape(count, 16)
    digits = np.empty((count, 32), np.uint8)
    digits[:, 0::2] = _HEX[raw >> 4]
    digits[:, 1::2] = _HEX[raw & 0x0F]
    text = np.full((count, 36), ord("-"), np.uint8)
    text[:, [at for at in range(36) if at not in _DASHES]] = digits
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(36)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
