"""What can go wrong, as exceptions."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Type


class BoughError(Exception):
    """Whatever this library raises."""


class ConnectionFailed(BoughError):
    """Nobody answers, or the connection broke off. `sent` tells whether the service may have got
    the request."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class AnswerCut(ConnectionFailed):
    """An answer ended before it was whole."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=True)


class BadAnswer(BoughError):
    """What came isn't HTTP, or isn't what boughd says."""


class ApiError(BoughError):
    """boughd's own answer: {code, message, details}, with the HTTP status (0: the reason why a
    stream was cut, which has none)."""

    def __init__(self, code: str, message: str, details: Optional[Mapping[str, Any]] = None,
                 status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: Dict[str, Any] = dict(details or {})
        self.status = status

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class Invalid(ApiError):
    """400, 415, 416, 422: the request can't be right, whoever sends it and when."""


class Unauthenticated(ApiError):
    """401"""


class Forbidden(ApiError):
    """403"""


class NotFound(ApiError):
    """404"""


class Conflict(ApiError):
    """409: it exists, is in use, isn't mounted …"""


class Busy(Conflict):
    """409 `busy`: in a while it may do."""


class Gone(ApiError):
    """410: what would follow isn't known any longer."""


class Changed(ApiError):
    """412: it isn't what If-Match said."""


class TooLarge(ApiError):
    """413"""


class TooMany(ApiError):
    """429"""


class NoSpace(ApiError):
    """507: the disk or a quota is full."""


class Unavailable(ApiError):
    """503"""


_CODES: Dict[str, Type[ApiError]] = {
    "invalid": Invalid, "unsupported": Invalid, "range": Invalid, "key_reused": Invalid,
    "checksum": Invalid, "unauthenticated": Unauthenticated, "forbidden": Forbidden,
    "refused": Forbidden, "not_found": NotFound, "exists": Conflict, "conflict": Conflict,
    "not_mounted": Conflict, "in_flight": Conflict, "cancelled": Conflict, "locked": Busy,
    "busy": Busy, "gone": Gone, "changed": Changed, "too_large": TooLarge, "too_many": TooMany,
    "no_space": NoSpace, "quota": NoSpace, "unavailable": Unavailable,
}
_STATUSES: Dict[int, Type[ApiError]] = {
    400: Invalid, 401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone,
    412: Changed, 413: TooLarge, 423: Busy, 429: TooMany, 503: Unavailable, 507: NoSpace,
}


def make_error(code: str, message: str, details: Optional[Mapping[str, Any]] = None,
               status: int = 0) -> ApiError:
    kind = _CODES.get(code, _STATUSES.get(status, ApiError))
    return kind(code, message, details, status)


def error_of(answer: Any, status: int) -> ApiError:
    """From a JSON answer, or whatever came in place of one."""
    if not isinstance(answer, dict):
        return make_error("", f"status {status}", None, status)
    details = answer.get("details")
    return make_error(str(answer.get("code", "")), str(answer.get("message", "")),
                      details if isinstance(details, dict) else None,
                      int(answer.get("status", status)))
