"""How a writer gets along with others: its mode, and what becomes of the writes of those that died."""

from __future__ import annotations

from dataclasses import dataclass

from skep_table.commit.options import CONCURRENCY_MODE, FAILED_WRITES_POLICY, ConcurrencyMode, FailedWritesPolicy
from skep_table.errors import OptionError, UnsupportedError
from skep_table.options import Options


@dataclass(frozen=True, slots=True)
class Concurrency:
    mode: ConcurrencyMode
    failed_writes: FailedWritesPolicy

    @classmethod
    def of(cls, options: Options) -> Concurrency:
        """OptionError for a policy that does not go with the mode; without one, the one that does is taken."""
        mode, policy = options.value(CONCURRENCY_MODE), options.value(FAILED_WRITES_POLICY)
        if mode is ConcurrencyMode.NON_BLOCKING:
            raise UnsupportedError(
                f"{CONCURRENCY_MODE.key}={mode.value} is not supported yet",
                hint=f"{ConcurrencyMode.OPTIMISTIC.value} is",
                option=CONCURRENCY_MODE.key,
            )
        if mode is ConcurrencyMode.OPTIMISTIC:
            if not options.is_set(FAILED_WRITES_POLICY):
                policy = FailedWritesPolicy.LAZY
            elif policy is not FailedWritesPolicy.LAZY:
                raise OptionError(
                    f"{CONCURRENCY_MODE.key}={mode.value} needs {FAILED_WRITES_POLICY.key}=LAZY, not {policy.value}:"
                    " a JVM writer with another policy rolls back the writes of others that still run",
                    hint=f"leave {FAILED_WRITES_POLICY.key} out",
                    option=FAILED_WRITES_POLICY.key,
                    found=policy.value,
                    expected=FailedWritesPolicy.LAZY.value,
                )
        return cls(mode, policy)

    @property
    def is_optimistic(self) -> bool:
        return self.mode is ConcurrencyMode.OPTIMISTIC
