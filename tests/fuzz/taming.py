"""What is changed in a request on its way out, so that a campaign is quick and means something. Nothing else is.

- Real ids and leases stand in for made-up ones: see `lending.py`.
- A wait that is allowed (up to 30 s) is cut to a moment. One that is not allowed goes out as it is.
- An `Idempotency-Key` that comes from the document's example gets a number: used again with another body it would be
  refused, and rightly, but hundreds of times.
- A whole number written `105.0` is written `105`. JSON Schema takes them for the same; the service wants an integer
  where it says so, and its clients write one.

All of it happens to the prepared request, so what schemathesis believes of its case stays true.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from requests import PreparedRequest
from requests.auth import AuthBase

from tests.fuzz.lending import Loan

MOMENT_SECONDS = 0.02
MAX_WAIT_SECONDS = 30
IN_BODY, IN_QUERY = "wait_seconds", "timeout_seconds"
"""Where polls and `…/wait` say how long."""
WHOLE = re.compile(r"-?\d+\.0+")
SHOWN_KEYS = ('"order-1042"', '"import-7"')


class Tamed(AuthBase):
    """Called by `requests` with what it is about to send."""

    def __init__(self, numbers: Iterator[int], loan: Loan | None) -> None:
        self._numbers = numbers
        self._loan = loan

    def __call__(self, r: PreparedRequest) -> PreparedRequest:
        if r.url and self._loan:
            r.url = urlunsplit(urlsplit(r.url)._replace(path=self._loan.path))
        if r.headers.get("Idempotency-Key") in SHOWN_KEYS:
            r.headers["Idempotency-Key"] = f'"fuzz-{next(self._numbers)}"'
        if r.url and r.url.partition("?")[0].endswith("/wait"):
            r.url = _hurried_url(r.url)
        if isinstance(r.body, str | bytes):
            _rewrite(r, r.body, self._loan.fields if self._loan else {})
        return r


def _hurried_url(url: str) -> str:
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    asked = [(name, str(_hurried(value)) if name == IN_QUERY else value) for name, value in given]
    if IN_QUERY not in dict(given):
        asked.append((IN_QUERY, str(MOMENT_SECONDS)))
    return urlunsplit(parts._replace(query=urlencode(asked)))


def _rewrite(r: PreparedRequest, body: str | bytes, lent: dict[str, str]) -> None:
    try:
        document = json.loads(body, parse_float=_number)
    except ValueError:
        return
    if isinstance(document, dict):
        fields = cast("dict[str, Any]", document)
        document = {name: _hurried(value) if name == IN_BODY else value for name, value in fields.items()}
        if all(isinstance(fields.get(name), str) for name in lent):
            document |= lent
    # Compared as they are written: 105.0 equals 105.
    if json.dumps(document) != json.dumps(json.loads(body)):
        r.body = json.dumps(document).encode()
        r.headers["Content-Length"] = str(len(r.body))


def _number(text: str) -> float | int:
    return int(text.partition(".")[0]) if WHOLE.fullmatch(text) else float(text)


def _hurried(value: Any) -> Any:
    """Whatever is no allowed wait is left alone."""
    try:
        is_long = not isinstance(value, bool) and MOMENT_SECONDS < float(value) <= MAX_WAIT_SECONDS
    except (TypeError, ValueError):
        return value
    return MOMENT_SECONDS if is_long else value
