"""Records of the record index: in which partition and file group each record key lies (format guide 7.4 and 16.5)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.metadata_table.partitions import RECORD_INDEX
from skep_table.metadata_table.records.build import type_of, update
from skep_table.metadata_table.records.update import PartitionUpdate

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
