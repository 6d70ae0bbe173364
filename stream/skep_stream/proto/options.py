"""Hudi's keys of Protobuf, and skep's own key of descriptors, which are in the place of generated Java classes."""

from __future__ import annotations

from skep_format.options import at_least, boolean, option
from skep_stream.options import streamer_option

_PREFIX = "schemaprovider.proto."
MESSAGE = streamer_option(
    f"{_PREFIX}class.name", str, "", "The Protobuf message: its full name, or that of the Java class made of it"
)
WRAPPERS = streamer_option(
    f"{_PREFIX}flatten.wrappers",
    boolean,
    False,
    "Int64Value and the like are records with a member `value`; else they are values that may be null",
)
TIMESTAMPS = streamer_option(
    f"{_PREFIX}timestamps.as.records",
    boolean,
    False,
    "Timestamps are records of seconds and nanos; else they are timestamps in µs",
)
DEPTH = streamer_option(
    f"{_PREFIX}max.recursion.depth",
    at_least(1),
    5,
    "How often a message may be within itself; what is deeper is kept as bytes with the name of its type",
)
DESCRIPTORS = option(
    "skep.stream.proto.descriptor.file",
    str,
    "",
    "A file of descriptors, made by `protoc --include_imports --descriptor_set_out=…`",
)
