"""Hashing metadata: default nodes as Hudi makes them, what a resize does to a ring, which file counts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import CorruptFileError
from skep_format.hashing_metadata import (
    FIRST,
    GREATEST_HASH,
    HashingMetadata,
    HashNode,
    NodeTag,
    counting,
    decode_nodes,
    encode_nodes,
    instants_of,
    marker_path,
    merged,
    metadata_path,
)
from skep_format.instant_time import InstantTime

# As Hudi 0.15.0 wrote it for partition a of a table with four buckets, but for the nodes left out.
OF_HUDI = b"""{
  "version" : 0,
  "partitionPath" : "a",
  "instant" : "00000000000000",
  "numBuckets" : 4,
  "seqNo" : 0,
  "nodes" : [ {
    "value" : 536870912,
    "fileIdPrefix" : "f439e116-a7cf-347c-a0cd-96483dc293d3",
    "tag" : "NORMAL"
  } ]
}"""
INSTANT = InstantTime("20260101000000000")


def ring(*values: int) -> HashingMetadata:
    return HashingMetadata("a", FIRST, 2, tuple(HashNode(value, f"at-{value}") for value in values))


def test_the_nodes_of_a_first_file_are_those_of_hudi() -> None:
    made = HashingMetadata.initial("a", 4)
    assert made.nodes[0] == HashingMetadata.decode(OF_HUDI, "x").nodes[0]
    assert [node.value for node in made.nodes] == [536870912, 1073741824, 1610612736, 2147483647]
    assert [node.value for node in HashingMetadata.initial("a", 2).nodes] == [1073741824, 2147483647]


@given(st.text(st.characters(codec="utf-8"), max_size=9), st.integers(1, 300))
def test_a_file_is_read_back(path: str, buckets: int) -> None:
    made = HashingMetadata.initial(path, buckets)
    assert HashingMetadata.decode(made.encode(), "x") == made
    assert len(made.nodes) == buckets
    assert made.nodes[-1].value == GREATEST_HASH
    assert list(json.loads(made.encode())) == ["version", "partitionPath", "instant", "numBuckets", "seqNo", "nodes"]


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", OF_HUDI[:-9], OF_HUDI.replace(b"536870912", b"-1"), OF_HUDI.replace(b"NORMAL", b"OTHER")],
)
def test_what_is_no_hashing_metadata_is_an_error_with_its_path(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="some/path"):
        HashingMetadata.decode(data, "some/path")


def test_a_range_without_file_group_is_an_error() -> None:
    with pytest.raises(CorruptFileError, match="no file group"):
        HashingMetadata.decode(OF_HUDI.replace(b'"f439e116-a7cf-347c-a0cd-96483dc293d3"', b"null"), "x")


def test_both_ranges_of_a_ring_are_split_as_hudi_did() -> None:
    before = ring(1073741824, 2147483647)
    children = [child for node in before.nodes for child in before.split(node)]
    assert {child.tag for child in children} == {NodeTag.REPLACE}
    after = before.resized(INSTANT, children)
    assert [node.value for node in after.nodes] == [536870911, 1073741824, 1610612735, 2147483647]
    assert (after.seq_no, after.num_buckets, after.instant) == (1, 2, INSTANT)
    assert {node.tag for node in after.nodes} == {NodeTag.NORMAL}
    assert not {node.prefix for node in after.nodes} & {node.prefix for node in before.nodes}


def test_a_range_of_one_hash_is_not_split() -> None:
    before = ring(7, 8)
    assert before.split(before.nodes[1]) == ()


def test_merged_ranges_keep_the_last_end() -> None:
    before = ring(10, 20, 30, 40)
    children = merged(before.nodes[1:3])
    assert [(child.value, child.tag) for child in children] == [(20, NodeTag.DELETE), (30, NodeTag.REPLACE)]
    after = before.resized(INSTANT, children)
    assert [node.value for node in after.nodes] == [10, 30, 40]
    assert [node.prefix for node in after.nodes] == ["at-10", children[1].prefix, "at-40"]


def test_a_merge_across_the_end_of_the_ring() -> None:
    before = ring(10, 20, 30)
    after = before.resized(INSTANT, merged((before.nodes[2], before.nodes[0])))
    assert [node.value for node in after.nodes] == [10, 20]


def test_nodes_of_a_plan_are_read_back() -> None:
    nodes = merged(ring(10, 20, 30).nodes)
    assert decode_nodes(encode_nodes(nodes), "x") == nodes
    assert json.loads(encode_nodes(nodes))[0] == {"value": 10, "fileIdPrefix": None, "tag": "DELETE"}
    with pytest.raises(CorruptFileError, match="the plan"):
        decode_nodes("[3]", "the plan")


def test_paths() -> None:
    folder = ".hoodie/.bucket_index/consistent_hashing_metadata"
    assert metadata_path("a=1/b=2", FIRST) == f"{folder}/a=1/b=2/00000000000000.hashing_meta"
    assert marker_path("", INSTANT) == f"{folder}/{INSTANT}.commit"
    assert marker_path("a=1", INSTANT, in_partition=True) == f"a=1/{INSTANT}.commit"


def times(*names: str) -> tuple[InstantTime, ...]:
    return tuple(map(InstantTime, names))


def test_the_instants_of_a_folder() -> None:
    names = ["2.hashing_meta", "00000000000000.hashing_meta", "2.commit", ".2.commit.crc", "1.hashing_meta.tmp", "p"]
    assert instants_of(names) == (times(FIRST, "2"), frozenset(times("2")))


@pytest.mark.parametrize(
    ("files", "markers", "committed", "found"),
    [
        ((), (), (), None),
        ((FIRST,), (), (), FIRST),
        ((FIRST, "2"), ("2",), (), "2"),
        ((FIRST, "2"), (), (), FIRST),
        ((FIRST, "2"), (), ("2",), "2"),
        ((FIRST, "2", "3"), ("2",), (), "2"),
        ((FIRST, "2", "3"), ("2",), ("3",), "3"),
        ((FIRST, "2", "3", "4"), (), ("2", "3"), "3"),
        (("2",), (), (), None),
    ],
)
def test_which_file_counts(
    files: tuple[str, ...], markers: tuple[str, ...], committed: tuple[str, ...], found: str | None
) -> None:
    assert counting(times(*files), times(*markers), lambda time: time in committed) == found
