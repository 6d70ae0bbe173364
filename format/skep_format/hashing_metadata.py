"""Consistent hashing: the file that maps ranges of hashes to the file groups of a partition (format guide 11.2, 17.3).

A ring of nodes: each is the upper end of a range, and names the file group with the keys whose hashes lie in it. The
first file of a partition is computed of its path; each resize, a clustering, writes another one.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from skep_format.errors import CorruptFileError
from skep_format.instant_time import InstantTime
from skep_format.names import META_FOLDER, join

INDEX_FOLDER: Final = f"{META_FOLDER}/.bucket_index"
"""The folder in which Hudi records buckets that are not counted alike in the whole table."""
FOLDER: Final = f"{INDEX_FOLDER}/consistent_hashing_metadata"
GREATEST_HASH: Final = 0x7FFFFFFF
FIRST: Final = InstantTime("00000000000000")
"""The instant of the first file, which belongs to no commit."""
_SUFFIX: Final = ".hashing_meta"
_MARKER_SUFFIX: Final = ".commit"
_NAME: Final = re.compile(r"(?P<time>\d+)(?P<suffix>\.hashing_meta|\.commit)", re.ASCII)


class NodeTag(str, Enum):
    """What a node of a plan does with the node at its place in the ring; nodes of files are NORMAL."""

    NORMAL = "NORMAL"
    REPLACE = "REPLACE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class HashNode:
    """The file group of the hashes above the node before, up to `value`. `prefix`: its id without `-0`; empty in a
    node that is deleted."""

    value: int
    prefix: str
    tag: NodeTag = NodeTag.NORMAL

    @property
    def file_id(self) -> str:
        """The id of its file group."""
        return f"{self.prefix}-0"


@dataclass(frozen=True, slots=True)
class HashingMetadata:
    """One file: the nodes of a partition by their values, and how many resizes (`seq_no`) it has seen.

    `num_buckets` remains that of the first file, however many nodes there are.
    """

    partition_path: str
    instant: InstantTime
    num_buckets: int
    nodes: tuple[HashNode, ...]
    seq_no: int = 0
    version: int = 0

    @classmethod
    def initial(cls, partition_path: str, buckets: int) -> HashingMetadata:
        """That of a partition without any: alike for all writers with the same number of buckets."""
        step = (GREATEST_HASH + buckets - 1) // buckets
        ends = [min(step * number, GREATEST_HASH) for number in range(1, buckets + 1)]
        nodes = (
            HashNode(end, _default_prefix(partition_path, start, end))
            for start, end in zip([0, *ends], ends, strict=False)
        )
        # of more buckets than there are hashes the last ones would share their end
        return cls(partition_path, FIRST, buckets, _ring(nodes))

    @classmethod
    def decode(cls, data: bytes, path: str) -> HashingMetadata:
        """CorruptFileError, with the path, for anything that is not such a file."""
        try:
            found = json.loads(data)
            nodes = _ring(_node(each) for each in found["nodes"])
            instant = InstantTime.parse(str(found["instant"]), path=path)
            metadata = cls(
                str(found["partitionPath"]),
                instant,
                int(found["numBuckets"]),
                nodes,
                int(found["seqNo"]),
                int(found.get("version", 0)),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError.of_file(path, f"no hashing metadata: {error!r}") from error
        if not nodes or any(not node.prefix for node in nodes):
            raise CorruptFileError.of_file(path, "a range of hashes has no file group", found=len(nodes))
        return metadata

    def encode(self) -> bytes:
        """The file's bytes, in the layout of Hudi's."""
        document = {
            "version": self.version,
            "partitionPath": self.partition_path,
            "instant": self.instant,
            "numBuckets": self.num_buckets,
            "seqNo": self.seq_no,
            "nodes": [_plain(node) for node in self.nodes],
        }
        return document_bytes(document)

    @property
    def path(self) -> str:
        """Where the file lies."""
        return metadata_path(self.partition_path, self.instant)

    def node_of(self, file_id: str) -> HashNode | None:
        """The node of a file group; None for a group that is not in the ring."""
        return next((node for node in self.nodes if node.file_id == file_id), None)

    def before(self, node: HashNode) -> HashNode:
        """The node before another one; the ring is closed."""
        return self.nodes[self.nodes.index(node) - 1]

    def resized(self, instant: InstantTime, children: Iterable[HashNode]) -> HashingMetadata:
        """That of a resize, given the nodes of its plan."""
        ring = {node.value: node for node in self.nodes}
        for child in children:
            if child.tag is NodeTag.DELETE:
                ring.pop(child.value, None)
            else:
                ring[child.value] = HashNode(child.value, child.prefix)
        return replace(self, instant=instant, nodes=_ring(ring.values()), seq_no=self.seq_no + 1)

    def renewed(self, instant: InstantTime) -> HashingMetadata:
        """That of a commit that replaces the partition's file groups: the same ranges, with other groups.

        Their ids follow from those before, so that each process that has this ring finds them.
        """
        nodes = (HashNode(node.value, str(uuid.uuid5(uuid.NAMESPACE_OID, node.prefix))) for node in self.nodes)
        return replace(self, instant=instant, nodes=_ring(nodes), seq_no=self.seq_no + 1)

    def split(self, node: HashNode) -> tuple[HashNode, ...]:
        """The nodes of the two halves of a range; none for a range that can't be cut."""
        former = self.before(node).value
        middle = former + node.value + (0 if former < node.value else GREATEST_HASH + 1)
        middle = (middle >> 1) & GREATEST_HASH
        if middle in (former, node.value):
            return ()
        return tuple(HashNode(value, str(uuid.uuid4()), NodeTag.REPLACE) for value in (middle, node.value))


def document_bytes(document: Mapping[str, object]) -> bytes:
    """JSON as Hudi lays it out in these files."""
    return json.dumps(document, indent=2, separators=(",", " : "), ensure_ascii=False).encode()


def merged(nodes: Sequence[HashNode]) -> tuple[HashNode, ...]:
    """The nodes of a plan that makes one range of neighbours, in their order on the ring."""
    *joined, last = nodes
    return (
        *(HashNode(node.value, "", NodeTag.DELETE) for node in joined),
        HashNode(last.value, str(uuid.uuid4()), NodeTag.REPLACE),
    )


def encode_nodes(nodes: Iterable[HashNode]) -> str:
    """Nodes as the text that a clustering plan has of them."""
    return json.dumps([_plain(node) for node in nodes])


def decode_nodes(text: str, path: str) -> tuple[HashNode, ...]:
    """The nodes in a clustering plan, in its order. CorruptFileError naming `path`, the file of the plan."""
    try:
        return tuple(_node(each) for each in json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError.of_file(path, f"no nodes of a hash ring: {error!r}") from error


def metadata_folder(partition_path: str) -> str:
    """The folder with the files of a partition, and their markers."""
    return join(FOLDER, partition_path)


def metadata_path(partition_path: str, instant: InstantTime) -> str:
    """The file that a resize writes, or the first one."""
    return join(metadata_folder(partition_path), f"{instant}{_SUFFIX}")


def marker_path(partition_path: str, instant: InstantTime, *, in_partition: bool = False) -> str:
    """The empty file that marks a file whose instant is known to be complete: beside it, or in the partition itself.

    Hudi 0.15 writes it there. Where one lies beside an older file, it can't resize the partition any more.
    """
    folder = partition_path if in_partition else metadata_folder(partition_path)
    return join(folder, f"{instant}{_MARKER_SUFFIX}")


def instants_of(names: Iterable[str]) -> tuple[tuple[InstantTime, ...], frozenset[InstantTime]]:
    """The instants of the files in the folder of a partition, oldest first, and those with a marker."""
    files, markers = set[InstantTime](), set[InstantTime]()
    for name in names:
        found = _NAME.fullmatch(name)
        if found is not None:
            (files if found["suffix"] == _SUFFIX else markers).add(InstantTime(found["time"]))
    return tuple(sorted(files)), frozenset(markers)


def counting(
    files: Sequence[InstantTime],
    markers: Collection[InstantTime],
    is_committed: Callable[[InstantTime], bool],
) -> InstantTime | None:
    """Which of the files of a partition counts; None where none does. `is_committed` decides on those without marker.

    The first file needs no marker. A file behind the newest one with a marker counts if its resize was committed.
    """
    for time in reversed(files):
        if time == FIRST or time in markers or is_committed(time):
            return time
    return None


def _ring(nodes: Iterable[HashNode]) -> tuple[HashNode, ...]:
    return tuple(sorted({node.value: node for node in nodes}.values(), key=lambda node: node.value))


def _node(found: dict[str, object]) -> HashNode:
    value = int(str(found["value"]))
    if not 0 <= value <= GREATEST_HASH:
        raise ValueError(f"{value} is no hash")
    return HashNode(value, str(found.get("fileIdPrefix") or ""), NodeTag(found.get("tag") or NodeTag.NORMAL))


def _plain(node: HashNode) -> dict[str, object]:
    return {"value": node.value, "fileIdPrefix": node.prefix or None, "tag": node.tag.value}


def _default_prefix(partition_path: str, start: int, end: int) -> str:
    """Java's UUID.nameUUIDFromBytes of the range and the path."""
    name = start.to_bytes(8, "big") + end.to_bytes(8, "big") + partition_path.encode()
    return str(uuid.UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3))
