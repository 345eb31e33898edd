"""Reads replies of scripts: each reply word is `OK` or stands for exactly one error."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from tideq.queue_core import errors
from tideq.queue_core.scripts.runner import Reply
from tideq.queue_core.store.formats import unknown_format

log = structlog.get_logger(__name__)


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def lossy_text(value: Any) -> str:
    """Decode with replacement characters, so that one invalid value does not make a whole hash unreadable."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def number(value: Any) -> int:
    return int(float(value))


def instant(value: Any) -> int | None:
    """Returns an instant or position; None if it is missing, which scripts write as an empty text."""
    return None if value in (b"", "", None) else number(value)


def pairs(flat: Sequence[Any]) -> dict[str, str]:
    """Returns a flat field-value list, as HGETALL gives it in a script, as a dictionary of texts."""
    texts = list(map(lossy_text, flat))
    return dict(zip(texts[::2], texts[1::2], strict=True))


def counts(flat: Sequence[Any]) -> dict[str, int]:
    """Like `pairs` with numbers for values; values that are not numbers are left out."""
    read = {field: number_or_none(value, field) for field, value in pairs(flat).items()}
    return {field: value for field, value in read.items() if value is not None}


def number_or_none(value: Any, of: str) -> int | None:
    """Returns None for a value that is not a number, and logs it once; `of` names the value in the log."""
    try:
        return number(value)
    except (ValueError, OverflowError):
        _log_bad_value(of, str(value), "number")
        return None


def text_or_none(value: Any, of: str) -> str | None:
    """The same for a text."""
    try:
        return text(value)
    except UnicodeDecodeError:
        _log_bad_value(of, str(value), "text")
        return None


def rate_or_none(value: Any, of: str) -> float | None:
    """Like `number_or_none`, for a fraction."""
    return None if number_or_none(value, of) is None else float(value)


@functools.lru_cache(maxsize=1_000)
def _log_bad_value(of: str, value: str, kind: str) -> None:
    log.error(f"stored value ignored: not a {kind}", of=of, value=value[:100])


class Refusal(NamedTuple):
    """The error of a reply word, and the readers of its details."""

    error: Callable[..., errors.QueueError]
    readers: tuple[Callable[[Any], object], ...]

    def about(self, *details: Any) -> errors.QueueError:
        return self.error(*(read(detail) for read, detail in zip(self.readers, details, strict=True)))


def _unreadable_kind(line: str) -> errors.InvalidTask:
    return errors.InvalidTask("priority", f"kind {line!r} is not valid: a priority must be a name, its numbers whole")


def _too_late() -> errors.StoreUnavailable:
    return errors.StoreUnavailable(
        "the reservation of the idempotency keys has expired; submit again", is_untouched=True
    )


REFUSALS = {
    "EPOCH_MISMATCH": Refusal(errors.StoreReplaced, (text,)),
    "UNKNOWN_FORMAT": Refusal(unknown_format, (text,)),
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
    """Returns the details of an `OK` reply; otherwise raises its error, with `subject` before the details."""
    if reply.word != "OK":
        raise REFUSALS[reply.word].about(*subject, *reply.details)
    return reply.details


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one row of a batch: accepted with details, or refused with an error."""

    task_id: str
    details: tuple[str, ...] = ()
    error: errors.QueueError | None = None

    def unwrap(self) -> "Outcome":
        if self.error is not None:
            raise self.error
        return self


def outcomes(reply: Reply, task_ids: Sequence[str]) -> list[Outcome]:
    """Returns the outcomes in the order of the rows. Equal replies, the usual case, are parsed once."""
    _, *rows = accepted(reply)
    words = {row: text(row).split(" ") for row in set(rows)}
    details = {row: tuple(rest) for row, (word, *rest) in words.items() if word == "OK"}
    return [
        Outcome(task_id, details[row]) if row in details else _refused(task_id, *words[row])
        for task_id, row in zip(task_ids, rows, strict=True)
    ]


def _refused(task_id: str, word: str, *details: str) -> Outcome:
    return Outcome(task_id, error=REFUSALS[word].about(task_id, *details))
