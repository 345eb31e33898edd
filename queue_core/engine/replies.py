"""What the scripts' words mean: `OK`, or exactly one error each."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from tideq.queue_core import errors
from tideq.queue_core.engine.scripts import Reply

log = structlog.get_logger(__name__)


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def shown(value: Any) -> str:
    """As well as can be where it is no text: others share the hash it is from."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def number(value: Any) -> int:
    return int(float(value))


def instant(value: Any) -> int | None:
    """An instant or position that may be missing, written as an empty text."""
    return None if value in (b"", "", None) else number(value)


def pairs(flat: Sequence[Any]) -> dict[str, str]:
    """A flat field-value list, as HGETALL returns it inside a script, as a dictionary of texts."""
    texts = list(map(shown, flat))
    return dict(zip(texts[::2], texts[1::2], strict=True))


def counts(flat: Sequence[Any]) -> dict[str, int]:
    """The same with numbers for values."""
    read = {field: known_number(value, field) for field, value in pairs(flat).items()}
    return {field: value for field, value in read.items() if value is not None}


def known_number(value: Any, of: str) -> int | None:
    """None, and told once, of what is none: what many share may hold one odd value."""
    try:
        return number(value)
    except (ValueError, OverflowError):
        _tell_odd(of, str(value), "number")
        return None


def known_text(value: Any, of: str) -> str | None:
    """The same of a text."""
    try:
        return text(value)
    except UnicodeDecodeError:
        _tell_odd(of, str(value), "text")
        return None


def known_rate(value: Any, of: str) -> float | None:
    """The same of a number that need not be whole."""
    return None if known_number(value, of) is None else float(value)


@functools.lru_cache(maxsize=1_000)
def _tell_odd(of: str, value: str, kind: str) -> None:
    log.error(f"a value in the store is no {kind}, and is left out", of=of, value=value[:100])


class Refusal(NamedTuple):
    """The error a word stands for, and how its details are read."""

    error: Callable[..., errors.QueueError]
    readers: tuple[Callable[[Any], object], ...]

    def about(self, *details: Any) -> errors.QueueError:
        return self.error(*(read(detail) for read, detail in zip(self.readers, details, strict=True)))


def _unreadable_kind(line: str) -> errors.InvalidTask:
    return errors.InvalidTask("priority", f"{line!r} is no kind of task: a priority must be a name, its numbers whole")


def _too_late() -> errors.StoreUnavailable:
    return errors.StoreUnavailable("the submission came too late for the keys it had taken", is_untouched=True)


REFUSALS = {
    "EPOCH_MISMATCH": Refusal(errors.StoreReplaced, (text,)),
    "NEWER_FORMAT": Refusal(errors.StoreTooNew, (text,)),
    "UNREADABLE_KIND": Refusal(_unreadable_kind, (text,)),
    "IDEMPOTENCY_CONFLICT": Refusal(errors.IdempotencyConflict, (text,)),
    "RANK_OUT_OF_RANGE": Refusal(errors.RankOutOfRange, (text, number)),
    "QUEUE_FULL": Refusal(errors.QueueFull, (text, number, number, number)),
    "TOO_MANY_SUBMISSIONS": Refusal(errors.TooManySubmissions, (text, number, number, number, number, number)),
    "BATCH_ABOVE_BURST": Refusal(errors.BatchAboveBurst, (number, number)),
    "KEY_PENDING": Refusal(errors.KeyPending, (text, text, number, number)),
    "TOO_MANY_NEW": Refusal(errors.TooManyNew, (number, number)),
    "TOO_LATE": Refusal(_too_late, ()),
    "OUTBOX_FULL": Refusal(errors.OutboxFull, (number, number, number)),
    "STORE_FULL": Refusal(errors.StoreFull, (number,)),
    "LANES_EXHAUSTED": Refusal(errors.LanesExhausted, (text,)),
    "TOO_MANY_NEW_LANES": Refusal(errors.TooManyNewLanes, (text, number)),
    "UNKNOWN_WORKER": Refusal(errors.UnknownWorker, (text,)),
    "WORKER_EXISTS": Refusal(errors.WorkerExists, (text,)),
    "TASK_NOT_FOUND": Refusal(errors.TaskNotFound, (text,)),
    "WRONG_STATE": Refusal(errors.WrongState, (text, text)),
    "STALE_LEASE": Refusal(errors.StaleLease, (text, text)),
}


def accepted(reply: Reply, *subject: str) -> list[Any]:
    """The details of an accepted script, or the refusal raised; `subject` is what the refusal is about."""
    if reply.word != "OK":
        raise REFUSALS[reply.word].about(*subject, *reply.details)
    return reply.details


class Outcome(msgspec.Struct, frozen=True):
    """What became of one row of a batch: accepted with details, or refused with an error."""

    task_id: str
    details: tuple[str, ...] = ()
    error: errors.QueueError | None = None

    def unwrap(self) -> "Outcome":
        if self.error is not None:
            raise self.error
        return self


def outcomes(reply: Reply, task_ids: Sequence[str]) -> list[Outcome]:
    """One outcome a row, in the order of the rows. Most of a batch are alike, and are read once."""
    _, *rows = accepted(reply)
    words = {row: text(row).split(" ") for row in set(rows)}
    details = {row: tuple(rest) for row, (word, *rest) in words.items() if word == "OK"}
    return [
        Outcome(task_id, details[row]) if row in details else _refused(task_id, *words[row])
        for task_id, row in zip(task_ids, rows, strict=True)
    ]


def _refused(task_id: str, word: str, *details: str) -> Outcome:
    return Outcome(task_id, error=REFUSALS[word].about(task_id, *details))
