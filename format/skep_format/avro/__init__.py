"""Avro's binary encoding: record bytes to Arrow columns and back, all records at once; object container files."""

from skep_format.avro.decode import decode_batches, decode_records, decode_values
from skep_format.avro.encode import encode_records
from skep_format.avro.types import UnionType, parse_record

__all__ = ["UnionType", "decode_batches", "decode_records", "decode_values", "encode_records", "parse_record"]
