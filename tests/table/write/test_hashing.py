"""The hash that spreads inserts over buckets: the same for a key in any batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_table.keys.hashes import key_hashes

PINNED = [16294208416658607535, 14409819318913866626, 9524265889144550203]


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1), st.integers(0, 5))
def test_a_key_hashes_the_same_alone_in_company_and_in_a_slice(keys: list[str], offset: int) -> None:
    together = key_hashes(pa.array(keys))
    assert [int(key_hashes(pa.array([key]))[0]) for key in keys] == together.tolist()
    assert key_hashes(pa.array(keys).slice(offset)).tolist() == together[offset:].tolist()


def test_the_hash_is_pinned_since_workers_of_two_versions_must_agree() -> None:
    assert key_hashes(pa.array(["", "k1", "flight-AA-1"])).tolist() == PINNED


def test_similar_keys_spread_evenly() -> None:
    keys = pa.array([f"id-{number:08d}" for number in range(200_000)])
    counts = np.bincount((key_hashes(keys) % np.uint64(16)).astype(np.int64), minlength=16)
    assert counts.min() > 0.97 * counts.mean()
    assert counts.max() < 1.03 * counts.mean()
