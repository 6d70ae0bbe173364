"""One file slice as a stream of rows: base file and logs merged, bootstrap files stitched (format guide 8, 10)."""

from skep_table.slices.logs import log_rows
from skep_table.slices.read import read_slice

__all__ = ["log_rows", "read_slice"]
