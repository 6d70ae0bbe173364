"""The schema that a file of the metadata table states, checked against those of the known releases.

Values have no schema of their own, so a damaged one would turn them into other values without an error.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa

from skep_format.avro import parse_record
from skep_format.avro.types import arrow_of
from skep_format.avro_schemas import RELEASES, schema_of
from skep_format.errors import SchemaError
from skep_format.schema.types import StructType

_RECORD: Final = "HoodieMetadataRecord"


@lru_cache(maxsize=64)
def metadata_record(text: str) -> StructType:
    """The type of the records. SchemaError unless it has what every release has, in the types that these have.

    Members that no known release has are left to themselves: later releases add some.
    """
    record = parse_record(text)
    oldest, newest = (arrow_of(parse_record(schema_of(_RECORD, release))) for release in (RELEASES[0], RELEASES[-1]))
    strange = _strange(arrow_of(record), oldest, newest, _RECORD)
    if strange is not None:
        raise SchemaError(f"the schema of the values is not that of a metadata table: {strange}", column=strange)
    return record


def _strange(found: pa.DataType, oldest: pa.DataType, newest: pa.DataType, name: str) -> str | None:
    """The first member that lacks or has another type than in the releases known."""
    if pa.types.is_map(newest):
        return _strange(found.item_type, oldest.item_type, newest.item_type, name) if pa.types.is_map(found) else name
    if pa.types.is_list(newest):
        return (
            _strange(found.value_type, oldest.value_type, newest.value_type, name) if pa.types.is_list(found) else name
        )
    if not pa.types.is_struct(newest):
        return None if found == newest else name
    if not pa.types.is_struct(found):
        return name
    members = {field.name: field.type for field in found}
    required = {field.name: field.type for field in oldest}
    for field in newest:
        inner = f"{name}.{field.name}"
        if field.name in members:
            problem = _strange(members[field.name], required.get(field.name, field.type), field.type, inner)
            if problem is not None:
                return problem
        elif field.name in required:
            return inner
    return None
