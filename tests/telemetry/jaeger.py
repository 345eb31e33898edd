"""What Jaeger would complain of: the rules of its own sanitizers and of its clock-skew adjuster, as of version 2.13.

Each complaint is a warning sign on a span in its pages. Two rules are ours: within one host Jaeger takes a child that
begins before its parent without a word, and it shows a link that leads nowhere like any other.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from tests.telemetry.sink import Seen

SERVER = 2


def complaints(spans: Sequence[Seen], outside: Collection[str] = (), told: Sequence[Seen] = ()) -> list[str]:
    """`outside` are parents, and what is linked to, that others tell, as the caller of a request does.

    Of one trace: `told` are all spans there are, to which its own may link.
    """
    anywhere = {(span.trace_id, span.span_id) for span in (*spans, *told)}
    found, known = list[str](), {(span.trace_id, span.span_id): span for span in spans}
    for (_, span_id), count in Counter((span.trace_id, span.span_id) for span in spans).items():
        if count > 1:
            found.append(f"duplicate span id {span_id}")
    for span in spans:
        if span.ended_ns <= span.began_ns:
            found.append(f"{span.name}: negative duration, or none")
        if not span.host:
            found.append(f"{span.name}: host unknown")
        nowhere = [link_id for link in span.links if link not in anywhere and (link_id := link[1]) not in outside]
        found += [f"{span.name}: links to {link_id}, which nobody told" for link_id in nowhere]
        parent = known.get((span.trace_id, span.parent_id))
        if parent is not None:
            found += _against(span, parent)
        elif span.parent_id and span.kind != SERVER and span.parent_id not in outside:
            found.append(f"{span.name}: invalid parent span id {span.parent_id}")
    return found


def _against(child: Seen, parent: Seen) -> list[str]:
    about = f"{child.name} under {parent.name}"
    if child.began_ns < parent.began_ns:
        return [f"{about}: begins {parent.began_ns - child.began_ns} ns before it"]
    if child.host == parent.host and child.host:
        return []
    return [f"{about}: clock skew"] if _skew_ns(child, parent) else []


def _skew_ns(child: Seen, parent: Seen) -> int:
    """Between hosts, what Jaeger would move the child by: it is to lie inside, unless it takes longer."""
    spent, had = child.ended_ns - child.began_ns, parent.ended_ns - parent.began_ns
    if spent > had:
        return max(parent.began_ns - child.began_ns, 0)
    if parent.began_ns <= child.began_ns and child.ended_ns <= parent.ended_ns:
        return 0
    return parent.began_ns + (had - spent) // 2 - child.began_ns
