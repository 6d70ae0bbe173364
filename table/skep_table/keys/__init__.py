"""Record keys and partition paths: Hudi's key generators over Arrow columns (format guide chapter 9)."""

from skep_format.escaping import escape as escape
from skep_format.escaping import unescape as unescape
from skep_table.keys.generator import KeyGenerator as KeyGenerator
from skep_table.keys.generator import KeyGeneratorType as KeyGeneratorType
from skep_table.keys.generator import infer_key_generator as infer_key_generator
from skep_table.keys.partition_path import split_path as split_path
