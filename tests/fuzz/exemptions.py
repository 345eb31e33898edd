"""What a campaign may report and is let pass: each with its reason, and no wider than that."""

import json
import re
from typing import Any

from schemathesis import Case, HookContext, Response
from schemathesis.core import NotSet
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.openapi.checks import RejectedPositiveData

BEYOND_A_SCHEMA = {
    "idempotency-conflict": "whether a key or an id stands for something else already",
    "durability-unavailable": "what this service runs with: no replica, no history",
    "rank-out-of-range": "a sum: when it may run, less its head start, plus its priority's offset",
}
"""Problems by the last word of their type, and what a JSON Schema of one request cannot say about them."""
BEYOND_A_FIELD = {
    r"client_id: the tasks of one submission must have the same client_id": "that the tasks of a batch agree",
    r"\bcursor\b": "which cursors the service gave out, and for which list",
    r"^parameter: ": "which parameters of which type are declared to be searchable",
    r"^health has \d+ bytes": "how long a document is as bytes",
}
"""The same, by their words."""


def is_a_finding(context: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
    if isinstance(failure, RejectedPositiveData):
        return not _is_beyond_a_schema(response)
    return not (isinstance(failure, AcceptedNegativeData) and _leaves_out_what_may_be_left_out(case))


def _is_beyond_a_schema(response: Response) -> bool:
    if response.status_code not in (400, 422):
        return False
    problem: dict[str, Any] = json.loads(response.content or b"{}")
    code, detail = problem["type"].rpartition("/")[2], problem["detail"]
    return code in BEYOND_A_SCHEMA or any(re.search(words, detail) for words in BEYOND_A_FIELD)


def _leaves_out_what_may_be_left_out(case: Case[Any]) -> bool:
    """A body that is not there counts as a wrong body with schemathesis, also where none is needed."""
    body: dict[str, Any] = case.operation.definition.raw.get("requestBody", {})
    return isinstance(case.body, NotSet) and not body.get("required", False)
