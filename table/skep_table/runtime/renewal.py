"""A thread that renews what others take for abandoned without it: a lease, or a writer's heartbeat."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable

from skep_format.errors import LeaseLostError

log = logging.getLogger("skep.renewal")

_JOIN_SECONDS = 5.0


class Renewal:
    """Calls `renew` every `interval_seconds` in a daemon thread, from its construction until `stop`.

    `renew` raises LeaseLostError when there is nothing left to renew: `on_lost` then gets the error, from this thread,
    and the thread ends. Any other exception is logged as one missed renewal. Both are bound methods and are held
    weakly, so that an owner which is garbage-collected without `stop` is not renewed any longer.
    """

    def __init__(
        self,
        renew: Callable[[], None],
        interval_seconds: float,
        on_lost: Callable[[LeaseLostError], None],
        *,
        name: str,
    ) -> None:
        self._renew = weakref.WeakMethod(renew)
        self._on_lost = weakref.WeakMethod(on_lost)
        self._interval = interval_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and waits for a renewal under way (at most 5 s). May be called from `on_lost`."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            renew, on_lost = self._renew(), self._on_lost()
            if renew is None or on_lost is None:
                return
            try:
                renew()
            except LeaseLostError as error:
                if not self._stopped.is_set():
                    on_lost(error)
                return
            except Exception as error:
                # Providers and other writers wait several intervals before they give up a holder.
                log.warning("%s: renewal failed: %s", self._thread.name, error)
            finally:
                del renew, on_lost  # not held while the thread waits
