"""A JSON Schema for people: its kind in a few words, its fields in a table."""

import json
from collections.abc import Mapping
from typing import Any

from tideq.api.openapi.components import REF
from tideq.api.openapi.html import Html, h, joined

LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "maxProperties": "at most {} of them",
    "pattern": "like {}",
}
Schema = Mapping[str, Any]


def kind_of(schema: Schema) -> Html:
    """In a few words, with links to what it is made of."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        return h("a", name, href=f"#schema-{name}")
    if "anyOf" in schema:
        return _either([kind_of(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return _either([h("code", json.dumps(value)) for value in schema["enum"]])
    if schema.get("type") == "array":
        return joined("list of ", kind_of(schema.get("items", {})))
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return joined("object of ", kind_of(schema["additionalProperties"]))
    kinds: Any = schema.get("type", "any JSON")
    return joined(kinds if isinstance(kinds, str) else " or ".join(kinds), _suffix(schema))


def limits_of(schema: Schema) -> Html:
    """What else holds for the value, also where it is one of several kinds."""
    own = [text.format(_shown(schema[key])) for key, text in LIMITS.items() if key in schema]
    if schema.get("default") is not None:
        own.append(f"{json.dumps(schema['default'], ensure_ascii=False)} by default")
    inner = [limits_of(each) for each in schema.get("anyOf", ())]
    return joined(", ".join([*own, *(each for each in inner if each)]))


def description_of(schema: Schema) -> str:
    """Its own words, or those of the first of its kinds that has any."""
    told = [schema, *schema.get("anyOf", ())]
    return next((str(each["description"]) for each in told if "description" in each), "")


def fields_of(schema: Schema) -> Html:
    needed = schema.get("required", ())
    rows = [_field(name, each, name in needed) for name, each in schema.get("properties", {}).items()]
    head = h("tr", h("th", "field", scope="col"), h("th", "kind", scope="col"), h("th", "meaning", scope="col"))
    return h("table", h("thead", head), h("tbody", *rows))


def _field(name: str, schema: Schema, is_needed: bool) -> Html:
    mark = h("span", "required", class_="required") if is_needed else None
    limits = limits_of(schema)
    kind = joined(kind_of(schema), h("div", limits, class_="limits") if limits else None)
    return h("tr", h("th", h("code", name), " ", mark, scope="row"), h("td", kind), h("td", description_of(schema)))


def _either(kinds: list[Html]) -> Html:
    parts: list[str] = []
    for kind in kinds:
        parts += [" or ", kind] if parts else [kind]
    return joined(*parts)


def _suffix(schema: Schema) -> str:
    return f" ({schema['format']})" if "format" in schema else ""


def _shown(value: Any) -> str:
    return f"{value:,.10g}".replace(",", " ") if isinstance(value, int | float) else str(value)
