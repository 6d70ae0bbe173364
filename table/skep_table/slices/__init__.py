"""One file slice as a stream of rows: base file and logs merged, bootstrap files stitched (format guide 8, 10)."""

from skep_table.slices.logs import log_rows as log_rows
from skep_table.slices.read import read_slice as read_slice
