"""Which buckets of consistent hashing a clustering splits and merges (format guide 17.4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from skep_format.errors import TableMismatchError
from skep_format.hashing_metadata import HashingMetadata, HashNode, encode_nodes, merged
from skep_format.options import Options
from skep_format.table_config import TableConfig
from skep_table.keys.buckets import MAX_BUCKETS, MERGE_THRESHOLD, MIN_BUCKETS, SPLIT_THRESHOLD
from skep_table.keys.hash_rings import CHILDREN, OF_PARTITION, SEQUENCE
from skep_table.view import FileSlice
from skep_table.write.planning.options import most_bytes


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Slices of one partition that become so many file groups. `extra`: what the plan records of a resize."""

    slices: tuple[FileSlice, ...]
    outputs: int
    extra: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Resizing:
    """What is too large and what is small, in bytes; how many buckets a partition may have. None: as it began with."""

    split_bytes: int
    merge_bytes: int
    most: int | None
    least: int | None

    @classmethod
    def of(cls, config: TableConfig, options: Options) -> Resizing:
        """As the options set it."""
        full = most_bytes(config, options)
        return cls(
            int(full * options.value(SPLIT_THRESHOLD)),
            int(full * options.value(MERGE_THRESHOLD)),
            options.value(MAX_BUCKETS),
            options.value(MIN_BUCKETS),
        )

    def groups(
        self, ring: HashingMetadata, slices: Sequence[FileSlice], rewritten: Collection[str] = ()
    ) -> list[PlannedGroup]:
        """What becomes of the slices of a partition that a clustering may take; `rewritten` are the ids of those that
        are put in order where they are neither split nor merged. TableMismatchError for a slice that is in no ring."""
        node_of = {node.file_id: node for node in ring.nodes}
        by_node = {_known(node_of, slice_): slice_ for slice_ in slices}
        nodes = [node for node in ring.nodes if node in by_node]
        room = (self.most or ring.num_buckets) - len(ring.nodes)
        spare = len(ring.nodes) - (self.least or ring.num_buckets)
        groups, kept = [], []
        for node in nodes:
            halves = ring.split(node) if room > 0 and by_node[node].size_bytes > self.split_bytes else ()
            if halves:
                groups.append(_group(ring, [by_node[node]], halves))
                room -= 1
                spare += 1
            else:
                kept.append(node)
        left = []
        for run in self._runs(ring, kept, by_node, spare):
            if len(run) > 1:
                groups.append(_group(ring, [by_node[node] for node in run], merged(run)))
            else:
                left += run
        ordered = [node for node in left if node.file_id in rewritten]
        return groups + [_group(ring, [by_node[node]], merged([node])) for node in ordered]

    def _runs(
        self, ring: HashingMetadata, nodes: Sequence[HashNode], slices: dict[HashNode, FileSlice], spare: int
    ) -> list[list[HashNode]]:
        """The nodes in runs of small neighbours, as long as a run stays small and a node can be spared."""
        places = {node: place for place, node in enumerate(ring.nodes)}
        runs: list[list[HashNode]] = []
        filled = 0
        for node in nodes:
            size = slices[node].size_bytes
            joins = runs and places[node] == places[runs[-1][-1]] + 1 and max(size, filled) <= self.merge_bytes
            if joins and spare > 0:
                runs[-1].append(node)
                spare -= 1
                filled += size
            else:
                runs.append([node])
                filled = size
        return runs


def _known(node_of: Mapping[str, HashNode], slice_: FileSlice) -> HashNode:
    node = node_of.get(slice_.file_id)
    if node is None:
        raise TableMismatchError(
            f"partition {slice_.partition_path or 'of the table'}: group {slice_.file_id} is in no hash ring",
            hint="all writers of a table have to use one index, with one engine of buckets",
            path=slice_.partition_path,
            found=slice_.file_id,
        )
    return node


def _group(ring: HashingMetadata, slices: Sequence[FileSlice], children: Sequence[HashNode]) -> PlannedGroup:
    extra = {
        OF_PARTITION: ring.partition_path,
        SEQUENCE: str(ring.seq_no),
        CHILDREN: encode_nodes(children),
    }
    return PlannedGroup(tuple(slices), sum(bool(child.prefix) for child in children), extra)
