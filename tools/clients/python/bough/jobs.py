"""Jobs: work that goes on when its caller is gone."""

from __future__ import annotations

import time
from typing import Any, Dict, Optional, cast

from ._transport import Transport
from .errors import error_of
from .types import JobInfo

WAIT_S = 30


class Job:
    def __init__(self, transport: Transport, info: Any) -> None:
        self._t = transport
        # What was done before, by the same key, is answered as it was.
        self.info: JobInfo = cast(JobInfo, info) if "state" in info and str(
            info.get("id", "")).startswith("jb_") else cast(
                JobInfo, {"id": "", "state": "done", "result": info})

    def __repr__(self) -> str:
        return f"Job({self.id!r}, {self.state!r})"

    @property
    def id(self) -> str:
        return self.info["id"]

    @property
    def state(self) -> str:
        return self.info["state"]

    def refresh(self, wait_s: int = 0) -> JobInfo:
        """Asks for it, and waits up to so many seconds (60) for its end."""
        if self.id:
            self.info = cast(JobInfo, self._t.call(
                "GET", "/v1/jobs/{id}", {"id": self.id}, query={"wait": wait_s or None}))
        return self.info

    def wait(self, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Its result, as the call itself would have answered; or its error, raised."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.state == "running":
            left = WAIT_S if end is None else min(WAIT_S, int(end - time.monotonic()) + 1)
            if left <= 0:
                raise TimeoutError(f"{self.id} still runs")
            self.refresh(left)
        if self.state != "done":
            raise error_of(self.info.get("error") or {"code": self.state, "message": self.state},
                           self.info.get("status", 0))
        return self.info.get("result") or {}

    def cancel(self) -> JobInfo:
        self.info = cast(JobInfo, self._t.call("POST", "/v1/jobs/{id}/cancel", {"id": self.id},
                                               json_body={}))
        return self.info
