"""Hudi's bloom filters over record keys: read from footers, built for them, asked many keys at once (guide 5.5)."""

from skep_format.bloom.filter import BloomBuilder as BloomBuilder
from skep_format.bloom.filter import BloomFilter as BloomFilter
from skep_format.bloom.filter import BloomKind as BloomKind
from skep_format.bloom.filter import StoredBloom as StoredBloom
from skep_format.bloom.filter import bits_for as bits_for
from skep_format.bloom.filter import fitted as fitted
from skep_format.bloom.hashes import HashKind as HashKind
from skep_format.bloom.hashes import KeyHashes as KeyHashes
