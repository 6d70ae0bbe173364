"""Hudi's keys of Kafka sources."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from skep_format.options import Status, at_least, boolean, one_of, option
from skep_stream.options import streamer_option


class Start(Enum):
    """From where a topic is read without a checkpoint."""

    LATEST = "latest"
    EARLIEST = "earliest"
    GROUP = "group"


class CheckpointType(Enum):
    """What a checkpoint may be beside offsets."""

    STRING = "string"
    TIMESTAMP = "timestamp"
    SINGLE_OFFSET = "single_offset"


def _lower(kind: type[Any]) -> Callable[[str], Any]:
    parse = one_of(kind)
    return lambda text: parse(text.lower())


TOPIC = streamer_option("source.kafka.topic", str, "", "The topic that is read")
START = option(
    "auto.offset.reset",
    _lower(Start),
    Start.LATEST,
    "Kafka sources without a checkpoint begin at: latest, earliest, group (the offsets committed for `group.id`)",
    accepts="one of latest, earliest, group",
)
CHECKPOINT_TYPE = streamer_option(
    "source.kafka.checkpoint.type",
    _lower(CheckpointType),
    CheckpointType.STRING,
    "What a checkpoint may be beside offsets: timestamp (10 or 13 digits), single_offset (of the only partition)",
    accepts="one of string, timestamp, single_offset",
)
FAIL_ON_LOSS = streamer_option(
    "source.kafka.enable.failOnDataLoss",
    boolean,
    True,
    "A checkpoint that lies outside of the topic is an error; false: such partitions are read from their first offset,"
    " with a warning",
)
MOST_EVENTS = streamer_option(
    "kafka.source.maxEvents", at_least(1), 5_000_000, "A round without --source-limit reads so many messages"
)
LEAST_PARTS = streamer_option(
    "source.kafka.minPartitions", at_least(0), 0, "The limit of a round is spread over so many parts of partitions"
)
DESERIALIZER = streamer_option(
    "source.kafka.value.deserializer.class",
    str,
    "io.confluent.kafka.serializers.KafkaAvroDeserializer",
    "AvroKafkaSource: KafkaAvroDeserializer, KafkaAvroSchemaDeserializer (rows get the schema of the provider) or"
    " ByteArrayDeserializer (messages are plain Avro of that schema)",
)
DESERIALIZER_SCHEMA = streamer_option(
    "source.kafka.value.deserializer.schema",
    str,
    "",
    "KafkaAvroSchemaDeserializer: an Avro schema, else the provider's",
)
JSON_DESERIALIZER = streamer_option(
    "source.kafka.json.value.deserializer.class",
    str,
    "org.apache.kafka.common.serialization.StringDeserializer",
    "JsonKafkaSource: StringDeserializer, or KafkaJsonSchemaDeserializer (JSON behind the id of a schema)",
)
PROTO_DESERIALIZER = streamer_option(
    "source.kafka.proto.value.deserializer.class",
    str,
    "org.apache.kafka.common.serialization.ByteArrayDeserializer",
    "ProtoKafkaSource: ByteArrayDeserializer (plain messages), KafkaProtobufDeserializer (behind the id of a schema)",
)
APPEND_OFFSETS = streamer_option(
    "source.kafka.append.offsets", boolean, False, "Rows get offset, partition, time and key of their messages"
)
COMMIT_OFFSETS = streamer_option(
    "source.kafka.enable.commit.offset", boolean, False, "The offsets of a commit are those of `group.id`, too"
)
ENVELOPE = option(
    "skep.stream.kafka.json.envelope",
    boolean,
    False,
    'JsonKafkaSource: messages are of Kafka Connect\'s converter with schemas, {"schema": …, "payload": …}',
)
TOPIC_ID = option(
    "skep.stream.kafka.topic.id",
    boolean,
    True,
    "Kafka sources: the topic's id is committed beside the checkpoint, so that one that was created again is noticed",
)
TIMEOUT = option(
    "skep.stream.kafka.timeout.seconds", at_least(1), 60, "Kafka sources: a round fails after so long without a message"
)
for _name, _doc in {
    "source.kafka.fetch_partition.time.out": "partitions are listed in one call, which the client repeats",
    "source.kafka.spark.sql.consumer.enable": "there is one client",
    "source.kafka.retry.initial_interval_ms": "the client repeats its calls",
    "source.kafka.retry.max_interval_ms": "the client repeats its calls",
    "source.kafka.retry.max_count": "the client repeats its calls",
    "source.kafka.retry.exceptions": "the client repeats its calls",
}.items():
    streamer_option(_name, str, "false", _doc, status=Status.NO_EFFECT)
for _name in (
    "source.kafka.offset.skip.buffer.minutes",
    "source.kafka.ignore.prefix.config.list",
    "source.kafka.value.deserializer.confluent.class",
    "source.json.kafka.processor.class",
):
    streamer_option(_name, str, "", "", status=Status.PLANNED)
