"""Every way a call can fail, as one tree.

    TideqError
    ├── CannotConnect          nothing was sent: nobody listens there, or the name or the certificate is wrong
    ├── NoAnswer               it was sent and the answer was lost: it may have been done
    ├── BadAnswer              something answered that is not a TideQ service
    ├── NotHeld                the task was not taken by this pull queue, or its time is up
    ├── NotAllMarked           of many tasks marked at once some were refused; `refused` says which and why
    └── Refusal                the service said no; `problem` is what it said
        ├── InvalidRequest     `fields` say what is wrong and where · PayloadTooLarge · IdempotencyConflict
        ├── Unauthorized       no key, or one that is unknown or revoked
        ├── Forbidden          the key's role may not do that
        ├── NotFound           UnknownWorker
        ├── Conflict           the task is not where the caller thinks · StaleLease
        ├── TooManyRequests    `retry_after` seconds from now it may be taken
        ├── Unavailable        the service, its store or a proxy before it is away
        ├── DurabilityNotReached  the task stands, less safe than was asked for
        └── ServerError        something went wrong inside

Which one it is follows from the `type` of the problem document, never from its words.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from tideq.client.models.tasks import Submitted

PROBLEM_TYPES = "https://tideq.dev/problems/"


class FieldProblem(msgspec.Struct, frozen=True):
    """What is wrong with one value of a request."""

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
    """The state a task is in, where that is what stands in the way."""
    task_id: str = ""
    durability: str = ""
    errors: tuple[FieldProblem, ...] = ()

    @property
    def code(self) -> str:
        """The last part of `type`: `wrong-state`, `queue-full`."""
        return self.type.removeprefix(PROBLEM_TYPES)


class TideqError(Exception):
    may_pass: ClassVar[bool] = False
    """The same call may succeed later."""
    retry_after: float | None = None
    """Seconds the service asked to wait."""
    submitted: tuple[Submitted, ...] = ()
    """What stands of a `submit_many` that came to a stop."""

    @property
    def may_be_done(self) -> bool:
        """What was asked for may have happened all the same."""
        return False


class CannotConnect(TideqError):
    may_pass = True


class UntrustedServer(CannotConnect):
    """The server's certificate is not to be trusted; asking again does not mend that."""

    may_pass = False


class NoAnswer(TideqError):
    may_pass = True

    @property
    def may_be_done(self) -> bool:
        return True


class BadAnswer(TideqError):
    pass


class NotHeld(TideqError):
    pass


class NotAllMarked(TideqError):
    """The others are marked."""

    def __init__(self, count: int, refused: Mapping[str, TideqError]) -> None:
        task_id, error = next(iter(refused.items()))
        super().__init__(f"{len(refused)} of {count} tasks were not marked; of {task_id}: {error}")
        self.refused = dict(refused)
        """Why, by task id."""


class Refusal(TideqError):
    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.retry_after = retry_after

    @property
    def task_id(self) -> str:
        """The task it is about, where it is about one."""
        return self.problem.task_id

    @property
    def may_be_done(self) -> bool:
        """A store may do what it was told and fail to say so."""
        return self.problem.status >= 500


class InvalidRequest(Refusal):
    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(problem, retry_after)
        self.fields = problem.errors


class PayloadTooLarge(InvalidRequest):
    pass


class IdempotencyConflict(InvalidRequest):
    """The key was used for something else; `task_id` is what it stands for."""


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
        """Where the task is."""
        return self.problem.state


class StaleLease(Conflict):
    pass


class TooManyRequests(Refusal):
    may_pass = True


class Unavailable(Refusal):
    may_pass = True


class DurabilityNotReached(Refusal):
    """Never tried again by itself: the task stands under `task_id`, and `reached` is how safe it is."""

    @property
    def reached(self) -> str:
        return self.problem.durability


class ServerError(Refusal):
    pass
