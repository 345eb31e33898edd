"""Writing HTML: whatever is not made here is escaped."""

from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


EMPTY_ELEMENTS = frozenset({"input", "link", "meta"})


def h(element: str, *children: str | None, **attributes: str | bool | None) -> Html:
    """An element. `class_` is its class, `data_x` its data-x; an attribute that is None or False is left out."""
    written = "".join(_attribute(name, value) for name, value in attributes.items() if value not in (None, False))
    if element in EMPTY_ELEMENTS:
        return Html(f"<{element}{written}>")
    return Html(f"<{element}{written}>{joined(*children)}</{element}>")


def joined(*children: str | None) -> Html:
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children if child))


def _attribute(name: str, value: str | bool | None) -> str:
    shown = name.rstrip("_").replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{escape(str(value))}"'
