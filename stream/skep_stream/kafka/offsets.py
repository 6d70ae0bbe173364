"""Offsets of a topic: the text of checkpoints, whether a log still has them, and what a round reads. Pure.

A checkpoint is `topic,0:2,1:1`: of each partition the offset that is read next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from skep_format.errors import DataLossError, InputError

Offsets = Mapping[int, int]
_FORM: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)(?P<offsets>(,\d+:\d+)+)")
SINK_KEY: Final = "kafka.commit.offsets"
_FORM_OF_SINK: Final = re.compile(r"\d+=\d+(,\d+=\d+)*")


@dataclass(frozen=True, slots=True)
class Log:
    """What a partition holds: offsets from `first` up to, not including, `end`; up to `top` with open transactions."""

    first: int
    end: int
    top: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What a round reads of a partition: from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def count(self) -> int:
        """How many offsets those are."""
        return self.end - self.start


def parse(text: str, topic: str) -> dict[int, int]:
    """The offsets of a checkpoint. InputError for what is none, and for one of another topic."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise InputError(
            f"topic {topic}: {text!r} is no checkpoint of a topic",
            hint=f"such as {topic},0:17,1:4; --ignore-checkpoint begins where auto.offset.reset is",
            topic=topic,
            found=text,
        )
    if found["topic"] != topic:
        raise InputError(
            f"topic {topic}: the checkpoint {text} is of topic {found['topic']}",
            hint="--ignore-checkpoint begins with the other topic",
            topic=topic,
            found=text,
        )
    return dict(_pair(each) for each in found["offsets"].lstrip(",").split(","))


def of_sink(text: str, topic: str) -> str:
    """The checkpoint for what Hudi's sink of Kafka Connect commits, `0=12,1=15`. InputError for what is none."""
    if _FORM_OF_SINK.fullmatch(text) is None:
        raise InputError(f"{SINK_KEY}={text} are no offsets of Hudi's sink", found=text, expected="0=12,1=15")
    return spell(topic, dict(_pair(each, "=") for each in text.split(",")))


def _pair(text: str, between: str = ":") -> tuple[int, int]:
    partition, _, offset = text.partition(between)
    return int(partition), int(offset)


def spell(topic: str, offsets: Offsets) -> str:
    """The checkpoint of offsets."""
    return ",".join([topic, *(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))])


def checked(topic: str, last: Offsets, logs: Mapping[int, Log]) -> dict[int, int]:
    """Where each partition is read on: at its checkpoint, a new one at its first offset.

    DataLossError names the partitions whose checkpoint the topic does not hold: records aged out, or the topic was
    deleted and created again.
    """
    lost = _lost(last, logs)
    if lost:
        raise DataLossError(
            f"topic {topic}: " + "; ".join(lost.values()),
            hint="hoodie.streamer.source.kafka.enable.failOnDataLoss=false reads these partitions from their first"
            " offset; --checkpoint names other offsets",
            topic=topic,
            partitions=tuple(lost),
        )
    return {partition: last.get(partition, log.first) for partition, log in logs.items()}


def clamped(last: Offsets, logs: Mapping[int, Log]) -> tuple[dict[int, int], list[str]]:
    """As `checked`, with partitions that lost their checkpoint at their first offset; and what was lost, in words."""
    lost = _lost(last, logs)
    starts = {
        partition: log.first if partition in lost else last.get(partition, log.first) for partition, log in logs.items()
    }
    return starts, list(lost.values())


def _lost(last: Offsets, logs: Mapping[int, Log]) -> dict[int, str]:
    found = {}
    for partition, offset in sorted(last.items()):
        log = logs.get(partition)
        if log is None:
            found[partition] = f"partition {partition} of the checkpoint, at offset {offset}, is not there"
        elif offset < log.first:
            found[partition] = f"partition {partition} begins at offset {log.first}, the checkpoint is {offset}"
        elif offset > log.top:
            found[partition] = f"partition {partition} ends at offset {log.top}, the checkpoint is {offset}"
    return found


def ranges(starts: Offsets, logs: Mapping[int, Log], most: int, least_parts: int = 0) -> dict[int, OffsetRange]:
    """What a round of up to `most` messages reads: the limit is spread over the partitions in turns, as Hudi does."""
    ends = {partition: max(starts[partition], log.end) for partition, log in sorted(logs.items())}
    at = {partition: starts[partition] for partition in ends}
    left = min(sum(ends[each] - at[each] for each in ends), most)
    share = max(1, left // max(least_parts, len(ends), 1))
    while left:
        for partition, end in ends.items():
            taken = min(share, left, end - at[partition])
            at[partition] += taken
            left -= taken
    return {partition: OffsetRange(starts[partition], until) for partition, until in at.items()}
