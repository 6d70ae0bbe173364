"""Record keys and partition paths: Hudi's key generators over Arrow columns (format guide chapter 9)."""

from skep_format.escaping import escape, unescape
from skep_table.keys.generator import KeyGenerator, KeyGeneratorType, infer_key_generator
from skep_table.keys.partition_path import split_path

__all__ = ["KeyGenerator", "KeyGeneratorType", "escape", "infer_key_generator", "split_path", "unescape"]
