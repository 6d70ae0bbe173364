"""Records of the record index: in which partition and file group each record key lies (format guide 7.4 and 16.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.escaping import unescape
from skep_table.metadata_table.keys import group_set, group_set_of
from skep_table.metadata_table.partitions import RECORD_INDEX
from skep_table.metadata_table.records.build import PartitionUpdate, type_of, update
from skep_table.view import FileSlice

if TYPE_CHECKING:
    from typing_extensions import Self

_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES: Final = (8, 13, 18, 23)
_AS_UUID: Final = 0
_AS_TEXT: Final = 1
_MISSING: Final = -1
# Only ids that come back as they were: lower case, and a number without leading zeros that Java reads as an int.
_UUID_ID: Final = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-(0|[1-9][0-9]{0,8}))?$"
_UUID_LENGTH: Final = 36
_ZEROS: Final = "00000000-0000-0000-0000-000000000000"


def record_index_update(
    keys: pa.Array,
    partition_paths: pa.Array,
    file_ids: pa.Array,
    instant_ms: int | pa.Array,
    release: str,
    *,
    deletes: pa.Array | None = None,
) -> PartitionUpdate:
    """Puts for `keys`, each with its partition path and file id; `deletes`: the keys that are no longer anywhere.

    `instant_ms`: the time of the commit in milliseconds, by the time zone of the timeline, or one for each key. A key
    that moved to another place is put only. ValueError for a key that is put twice.
    """
    kind = type_of(RECORD_INDEX, release)
    coded = file_ids.dictionary_encode()
    ids = {name: values.take(coded.indices) for name, values in _packed(coded.dictionary).items()}
    count = len(keys)
    members = {
        **ids,
        "partitionName": partition_paths,
        "instantTime": pa.array(np.full(count, instant_ms, np.int64)) if isinstance(instant_ms, int) else instant_ms,
    }
    arrays = [members[field.name] if field.name in members else pa.nulls(count, field.type) for field in kind]
    records = pa.StructArray.from_arrays(arrays, fields=list(kind))
    return update(RECORD_INDEX, keys, records, deletes)


def _packed(file_ids: pa.Array) -> dict[str, pa.Array]:
    """File ids as the members that hold them: UUIDs as two numbers and the number behind, all others as text."""
    packs = pc.match_substring_regex(file_ids, _UUID_ID)
    uuids = pc.if_else(packs, pc.utf8_slice_codeunits(file_ids, 0, _UUID_LENGTH), _ZEROS)
    number = pc.utf8_slice_codeunits(pc.if_else(packs, file_ids, _ZEROS), _UUID_LENGTH + 1)
    number = pc.if_else(pc.equal(number, ""), str(_MISSING), number).cast(pa.int32())
    high, low = _bits(uuids)
    missing = pa.scalar(_MISSING, pa.int64())
    return {
        "fileIdHighBits": pc.if_else(packs, pa.array(high), missing),
        "fileIdLowBits": pc.if_else(packs, pa.array(low), missing),
        "fileIndex": number,
        "fileId": pc.if_else(packs, "", file_ids),
        "fileIdEncoding": pc.if_else(packs, _AS_UUID, _AS_TEXT).cast(pa.int32()),
    }


def _bits(uuids: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The two halves of UUIDs that are written as lower-case text."""
    digits = pc.replace_substring(uuids, "-", "").buffers()[2] or b""
    text = np.frombuffer(digits, np.uint8)[: 32 * len(uuids)].reshape(-1, 32)
    nibbles = np.where(text >= ord("a"), text - (ord("a") - 10), text - ord("0"))
    halves = np.ascontiguousarray(nibbles[:, 0::2] << 4 | nibbles[:, 1::2]).view(">i8").astype(np.int64)
    return halves[:, 0], halves[:, 1]


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
        whole = group_set_of(RECORD_INDEX)
        partition = None if shared == whole else unescape(shared.removeprefix(f"{whole}-"))
        return cls(partition, size + sum(log.size_bytes for log in slice_.log_files))


def file_ids(keys: pa.Array, records: Any) -> pa.Table:
    """Columns `record_key`, `partition_path`, `file_id`, `instant_ms`."""
    if pa.types.is_null(records.type):
        texts = pa.array([], pa.string())
        return _table(texts, texts, texts, pa.array([], pa.int64()))
    present = records.is_valid()
    keys, records = keys.filter(present), records.filter(present)
    member = {field.name: pc.struct_field(records, field.name) for field in records.type}
    packed = pc.equal(member["fileIdEncoding"], _AS_UUID)
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
