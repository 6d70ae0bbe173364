"""How log files are named, announced and rolled back (format guide 4.3, 6.5 and 14.4)."""

from __future__ import annotations

from dataclasses import dataclass

from skep_format.instant_time import InstantTime
from skep_format.names import LogFileName, MarkerType

_TIME_OF_DAY_DIGITS = 9


def _stage(delta_commit: InstantTime) -> int:
    return int(delta_commit[-_TIME_OF_DAY_DIGITS:])


@dataclass(frozen=True, slots=True)
class LogNaming:
    """The log files of one table version.

    `of_delta_commit`: a log file is named by the delta commit that wrote it, and belongs to the slice that this delta
    commit completed on. Otherwise it is named by the base instant of its slice, and commits share the log files of a
    slice: a reader decides block by block. `marker_type` is the type of the marker that announces a log file.
    `has_positions`: blocks may name the rows of the base file that they change; older readers fail at such headers.
    """

    of_delta_commit: bool
    marker_type: MarkerType
    has_positions: bool

    @property
    def rolled_back_by_deletion(self) -> bool:
        """Whether a rollback deletes the log files of its target. Otherwise it appends a command block to the slice."""
        return self.of_delta_commit

    def new_file(
        self, file_id: str, base_instant: InstantTime, delta_commit: InstantTime, last_version: int, write_token: str
    ) -> LogFileName:
        """The next log file of a slice, or of a delta commit: `last_version` is 0 before the first."""
        named_by = delta_commit if self.of_delta_commit else base_instant
        return LogFileName(file_id, named_by, last_version + 1, write_token)

    def write_token(self, task: int, attempt: int, delta_commit: InstantTime, *, of_slice: bool = False) -> str:
        """`<task>-<stage>-<attempt>`.

        Where commits share the log files of a slice, the stage is the time of day of the delta commit: two writers may
        be at the same task, stage and attempt. `of_slice`: so it is with this slice in any version.
        """
        stage = 0 if self.of_delta_commit and not of_slice else _stage(delta_commit)
        return f"{task}-{stage}-{attempt}"

    def is_own(self, name: LogFileName, delta_commit: InstantTime) -> bool:
        """Whether this delta commit of ours began the file: it is not one of another that it wrote to as well."""
        if self.of_delta_commit or name.cdc:
            return True
        return (name.write_token or "").split("-")[1:2] == [str(_stage(delta_commit))]
