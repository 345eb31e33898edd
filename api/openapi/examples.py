"""Examples of whole documents, composed of the examples of their fields."""

from collections.abc import Mapping
from typing import Any

from tideq.api.openapi.components import Components

EASY = {"boolean": False, "null": None}


def example_of(schema: Mapping[str, Any], components: Components, place: str = "") -> Any:
    """Raises `TypeError` if a required part has no example."""
    whole = components.resolve(schema)
    if "examples" in whole:
        return whole["examples"][0]
    if "anyOf" in whole and ("default" not in whole or _has_example(whole)):
        return example_of(whole["anyOf"][0], components, place)
    if "default" in whole:
        return whole["default"]
    if "enum" in whole:
        return whole["enum"][0]
    return _by_type(whole, components, place)


def _by_type(whole: Mapping[str, Any], components: Components, place: str) -> Any:
    kind = whole.get("type")
    if kind == "object" and "properties" in whole:
        return _object(whole, components, place)
    if kind == "array" and "items" in whole:
        return [example_of(whole["items"], components, f"{place}/0")]
    if kind in EASY:
        return EASY[kind]
    raise TypeError(f"{place} has no example; describe it with about(…, example)")


def _object(whole: Mapping[str, Any], components: Components, place: str) -> dict[str, Any]:
    """The required fields, and of the others those with an example of their own."""
    return {
        name: example_of(each, components, f"{place or whole.get('title', '')}/{name}")
        for name, each in whole["properties"].items()
        if name in whole.get("required", ()) or _has_example(each)
    }


def _has_example(schema: Mapping[str, Any]) -> bool:
    """Whether an optional field is worth showing."""
    if schema.get("examples", [None])[0] is not None:
        return True
    return any(choice.get("examples") for choice in schema.get("anyOf", ()))
