"""The metrics of a plan, as Hudi computes them for slices that are read and rewritten."""

from __future__ import annotations

from collections.abc import Iterable

from skep_table.view import FileSlice

_MIB = 1 << 20


def slice_metrics(slices: Iterable[FileSlice], file_bytes: int) -> dict[str, float]:
    """Whole mebibytes, as Hudi counts them. `file_bytes` stands in for a base file that is not there yet."""
    found = list(slices)
    logs = [log.size_bytes for slice_ in found for log in slice_.log_files]
    bases = [slice_.base_file.size_bytes if slice_.base_file else 0 for slice_ in found]
    read = (sum(bases) + sum(logs)) // _MIB
    written = sum(size or file_bytes for size in bases) // _MIB
    return {
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_IO_WRITE_MB": float(written),
        "TOTAL_IO_MB": float(read + written),
        "TOTAL_LOG_FILES": float(len(logs)),
        "TOTAL_LOG_FILES_SIZE": float(sum(logs)),
    }
