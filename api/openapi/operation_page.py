"""One call on the page: what goes in, what comes out, and a form to try it."""

import json
from collections.abc import Mapping
from typing import Any

from tideq.api.openapi.html import Html, h, joined
from tideq.api.openapi.schema_table import description_of, kind_of, limits_of

Section = Mapping[str, Any]


def operation_section(method: str, path: str, operation: Section, document: Section) -> Html:
    body = operation.get("requestBody")
    return h(
        "div",
        h("p", operation["description"]) if operation["description"] else None,
        _parameters(operation["parameters"]),
        _body(body) if body else None,
        h("h3", "Answers"),
        *(_response(status, each, document) for status, each in operation["responses"].items()),
        _form(method, path, operation),
        class_="call",
    )


def _parameters(parameters: list[Section]) -> Html | None:
    if not parameters:
        return None
    head = h("tr", *(h("th", title, scope="col") for title in ("parameter", "kind", "meaning")))
    return joined(h("h3", "Parameters"), h("table", h("thead", head), h("tbody", *map(_parameter, parameters))))


def _parameter(parameter: Section) -> Html:
    mark = h("span", "required", class_="required") if parameter["required"] else None
    limits = limits_of(parameter["schema"])
    place = h("div", f"in the {parameter['in']}", class_="limits")
    kind = joined(kind_of(parameter["schema"]), h("div", limits, class_="limits") if limits else None)
    name = h("th", h("code", parameter["name"]), " ", mark, place, scope="row")
    return h("tr", name, h("td", kind), h("td", parameter["description"]))


def _body(body: Section) -> Html:
    parts = [h("h3", "Body"), h("p", "May be left out.") if not body["required"] else None]
    for media_type, content in body["content"].items():
        parts += [h("p", kind_of(content["schema"]), " as ", h("code", media_type)), _examples(content)]
    return joined(*parts)


def _response(status: str, response: Section, document: Section) -> Html:
    summary = h("summary", h("code", status, class_=f"status s{status[0]}"), " ", response["description"])
    parts: list[Html] = []
    for media_type, content in response["content"].items():
        parts += [h("p", kind_of(content["schema"]), " as ", h("code", media_type)), _examples(content, document)]
    return h("details", summary, *map(_header, response.get("headers", {}).items()), *parts, class_="response")


def _header(header: tuple[str, Section]) -> Html:
    name, told = header
    return h("p", h("code", name), ": ", description_of(told))


def _examples(content: Section, document: Section | None = None) -> Html:
    if "example" in content:
        return h("pre", content["example"])
    shown = [_example(name, each, document) for name, each in content.get("examples", {}).items()]
    return joined(*shown)


def _example(name: str, example: Section, document: Section | None) -> Html:
    if "$ref" in example and document is not None:
        example = document["components"]["examples"][example["$ref"].rpartition("/")[2]]
    return h("figure", h("figcaption", name), h("pre", _pretty(example["value"])))


def _form(method: str, path: str, operation: Section) -> Html:
    identity = operation["operationId"]
    fields = [_input(identity, each) for each in operation["parameters"]]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    return h(
        "form",
        h("h3", "Try it"),
        *fields,
        _body_field(identity, content) if content else None,
        h("p", h("button", "Send", type="submit"), h("button", "Stop", type="button", class_="stop", hidden=True)),
        h("pre", class_="curl", aria_label="The same with curl"),
        h("output", aria_live="polite"),
        data_method=method,
        data_path=path,
        data_needs_key="yes" if operation["security"] else None,
    )


def _input(identity: str, parameter: Section) -> Html:
    name, place = parameter["name"], parameter["in"]
    shown = parameter.get("example") if place == "path" else None
    is_list = parameter["schema"].get("type") == "array"
    field = h(
        "input",
        id=f"{identity}-{name}",
        data_in=place,
        data_many="yes" if is_list else None,
        name=name,
        value=shown,
        spellcheck="false",
    )
    hint = f"{name} ({place}{', several with commas' if is_list else ''})"
    return h("p", h("label", hint, for_=f"{identity}-{name}"), field)


def _body_field(identity: str, content: Section) -> Html:
    first = next(iter(content["examples"].values()))["value"]
    area = h("textarea", _pretty(first), id=f"{identity}-body", name="body", rows="8", spellcheck="false")
    return h("p", h("label", "Body", for_=f"{identity}-body"), area)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
