"""All errors of a call, as one tree.

    TideqError
    ├── CannotConnect          nothing was sent: no server listens there, or the name or the certificate is wrong
    ├── NoAnswer               the request was sent and the response was lost: it may have been carried out
    ├── BadAnswer              the response is not from a TideQ service
    ├── NotHeld                the task was not taken by this pull queue, or its time has passed
    ├── NotAllMarked           some of many tasks marked at once were refused; `refused` has the error of each
    └── Refusal                the service refused the request; `problem` is its problem document
        ├── InvalidRequest     `fields` has the invalid values · PayloadTooLarge · IdempotencyConflict
        ├── Unauthorized       the key is missing, unknown or revoked
        ├── Forbidden          the key's role may not do that
        ├── NotFound           UnknownWorker
        ├── Conflict           the task is in another state · StaleLease
        ├── TooManyRequests    try again in `retry_after` seconds
        ├── Unavailable        the service, its store or a proxy is not reachable
        ├── DurabilityNotReached  the task was accepted with a lower durability than requested
        └── ServerError        an internal error of the service

The class follows from the `type` of the problem document, never from its text.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from tideq.client.models.tasks import Submitted

PROBLEM_TYPES = "https://tideq.dev/problems/"


class FieldProblem(msgspec.Struct, frozen=True):
    """The problem with one value of a request."""

    pointer: str
    """JSON Pointer into the request."""
    detail: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An RFC 9457 problem document, as the service sends it."""

    type: str = "about:blank"
    title: str = ""
    status: int = 0
    detail: str = ""
    instance: str = ""
    state: str = ""
    """The state of the task, where the state is the reason."""
    task_id: str = ""
    durability: str = ""
    errors: tuple[FieldProblem, ...] = ()

    @property
    def code(self) -> str:
        """The last part of `type`: `wrong-state`, `queue-full`."""
        return self.type.removeprefix(PROBLEM_TYPES)


class TideqError(Exception):
    is_transient: ClassVar[bool] = False
    """The same call may succeed later."""
    retry_after: float | None = None
    """Seconds to wait, from the service's Retry-After."""
    submitted: tuple[Submitted, ...] = ()
    """Tasks that `submit_many` submitted before the error."""

    @property
    def may_have_run(self) -> bool:
        """Whether the service may have carried out the request."""
        return False


class CannotConnect(TideqError):
    is_transient = True


class UntrustedServer(CannotConnect):
    """The certificate of the server is not trusted; a retry cannot succeed."""

    is_transient = False


class NoAnswer(TideqError):
    is_transient = True

    @property
    def may_have_run(self) -> bool:
        return True


class BadAnswer(TideqError):
    pass


class NotHeld(TideqError):
    pass


class NotAllMarked(TideqError):
    """Some tasks were refused; all others are marked."""

    def __init__(self, count: int, refused: Mapping[str, TideqError]) -> None:
        task_id, error = next(iter(refused.items()))
        super().__init__(f"{len(refused)} of {count} tasks were not marked; of {task_id}: {error}")
        self.refused = dict(refused)
        """Errors by task id."""


class Refusal(TideqError):
    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.retry_after = retry_after

    @property
    def task_id(self) -> str:
        """The task concerned, or empty."""
        return self.problem.task_id

    @property
    def may_have_run(self) -> bool:
        """The store may have carried out a command whose reply was lost."""
        return self.problem.status >= 500


class InvalidRequest(Refusal):
    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(problem, retry_after)
        self.fields = problem.errors


class PayloadTooLarge(InvalidRequest):
    pass


class IdempotencyConflict(InvalidRequest):
    """The key belongs to a task with other content; `task_id` is that task."""


class Unauthorized(Refusal):
    pass


class Forbidden(Refusal):
    pass


class NotFound(Refusal):
    pass


class UnknownWorker(NotFound):
    pass


class Conflict(Refusal):
    @property
    def state(self) -> str:
        """The present state of the task."""
        return self.problem.state


class StaleLease(Conflict):
    pass


class TooManyRequests(Refusal):
    is_transient = True


class Unavailable(Refusal):
    is_transient = True


class DurabilityNotReached(Refusal):
    """Not retried: the task was accepted as `task_id`, with the durability `reached`."""

    @property
    def reached(self) -> str:
        return self.problem.durability


class ServerError(Refusal):
    pass
