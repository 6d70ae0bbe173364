"""Avro's binary encoding: record bytes to Arrow columns and back, all records at once; object container files."""

from skep_format.avro.decode import decode_batches as decode_batches
from skep_format.avro.decode import decode_records as decode_records
from skep_format.avro.decode import decode_values as decode_values
from skep_format.avro.encode import encode_records as encode_records
from skep_format.avro.types import parse_record as parse_record
