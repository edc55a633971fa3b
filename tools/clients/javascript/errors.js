// What can go wrong, as exceptions.

/** Whatever this library throws. */
export class BoughError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Nobody answers, or the connection broke off. `sent`: the service may have got the request. */
export class ConnectionFailed extends BoughError {
  constructor(message, { sent = false, cause } = {}) {
    super(message, { cause });
    this.sent = sent;
  }
}

/** An answer ended before it was whole. */
export class AnswerCut extends ConnectionFailed {
  constructor(message, { cause } = {}) {
    super(message, { sent: true, cause });
  }
}

/** What came isn't what boughd says. */
export class BadAnswer extends BoughError {}

/** boughd's own answer: {code, message, details}, with the HTTP status (0: none). */
export class ApiError extends BoughError {
  constructor(code, message, details = {}, status = 0) {
    super(`${message} (${code})`);
    Object.assign(this, { code, reason: message, details, status });
  }
}

export class Invalid extends ApiError {}
export class Unauthenticated extends ApiError {}
export class Forbidden extends ApiError {}
export class NotFound extends ApiError {}
export class Conflict extends ApiError {}
export class Busy extends Conflict {}
export class Gone extends ApiError {}
export class Changed extends ApiError {}
export class TooLarge extends ApiError {}
export class TooMany extends ApiError {}
export class NoSpace extends ApiError {}
export class Unavailable extends ApiError {}

const codes = {
  invalid: Invalid, unsupported: Invalid, range: Invalid, key_reused: Invalid, checksum: Invalid,
  unauthenticated: Unauthenticated, forbidden: Forbidden, refused: Forbidden, not_found: NotFound,
  exists: Conflict, conflict: Conflict, not_mounted: Conflict, in_flight: Conflict,
  cancelled: Conflict, locked: Busy, busy: Busy, gone: Gone, changed: Changed,
  too_large: TooLarge, too_many: TooMany, no_space: NoSpace, quota: NoSpace,
  unavailable: Unavailable,
};
const statuses = {
  400: Invalid, 401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone,
  412: Changed, 413: TooLarge, 423: Busy, 429: TooMany, 503: Unavailable, 507: NoSpace,
};

/** From a JSON answer, or whatever came in place of one. */
export function errorOf(answer, status) {
  const { code = '', message = `status ${status}`, details } = answer ?? {};
  const Kind = codes[code] ?? statuses[answer?.status ?? status] ?? ApiError;
  return new Kind(code, message, details ?? {}, answer?.status ?? status);
}
