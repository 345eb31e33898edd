"""The document as a page. All of it is in the HTML: the script is only needed to try calls and to filter."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tideq.api.openapi.html import Html, h, joined
from tideq.api.openapi.operation_page import operation_section
from tideq.api.openapi.schema_table import fields_of, kind_of

Document = Mapping[str, Any]
Operation = tuple[str, str, Mapping[str, Any]]
"""Method, path and what is said about it."""


def page_of(document: Document) -> str:
    found = list(_operations(document))
    body = h(
        "body",
        h("a", "Skip to the calls", href="#calls", class_="skip"),
        _header(document),
        h("div", _menu(document, found), h("main", *_sections(document, found), id="calls"), class_="columns"),
    )
    return "<!doctype html>\n" + h("html", _head(document), body, lang="en") + "\n"


def _operations(document: Document) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _head(document: Document) -> Html:
    return h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", f"{document['info']['title']} API"),
        h("link", rel="icon", href="data:,"),
        h("link", rel="stylesheet", href="/docs/page.css"),
        h("script", src="/docs/page.js", defer=True),
    )


def _header(document: Document) -> Html:
    info = document["info"]
    key = h("input", id="key", type="password", autocomplete="off", spellcheck="false", placeholder="tq_…")
    return h(
        "header",
        h("h1", info["title"], " ", h("small", info["version"])),
        h("div", *(h("p", part) for part in info["description"].split("\n\n")), class_="introduction"),
        h("p", h("a", "openapi.json", href="/openapi.json"), " for programs"),
        h("p", h("label", "Your key, kept in this tab only", for_="key"), key, class_="key"),
    )


def _menu(document: Document, found: list[Operation]) -> Html:
    find = h("input", id="filter", type="search", placeholder="Filter: press /", aria_label="Filter the calls")
    groups = [_menu_group(tag["name"], found) for tag in document["tags"]]
    schemas = h("li", h("a", "Schemas", href="#schemas"))
    return h("nav", find, *groups, h("ul", schemas), aria_label="Calls")


def _menu_group(tag: str, found: list[Operation]) -> Html:
    entries = [
        h("li", h("a", _badge(method), " ", path, href=f"#{operation['operationId']}"), data_finds=_finds(each))
        for each in found
        for method, path, operation in [each]
        if tag in operation["tags"]
    ]
    return joined(h("h2", tag.replace("_", " ")), h("ul", *entries))


def _sections(document: Document, found: list[Operation]) -> Iterator[Html]:
    for tag in document["tags"]:
        own = [
            h(
                "details",
                h("summary", _badge(method), " ", h("code", path), " ", h("span", operation["summary"])),
                operation_section(method, path, operation, document),
                id=operation["operationId"],
                class_="operation",
                data_finds=_finds(each),
            )
            for each in found
            for method, path, operation in [each]
            if tag["name"] in operation["tags"]
        ]
        yield h("section", h("h2", tag["name"].replace("_", " ")), h("p", tag["description"] + "."), *own)
    yield _schemas(document["components"]["schemas"])


def _schemas(schemas: Mapping[str, Any]) -> Html:
    return h("section", h("h2", "Schemas"), *(_schema(name, each) for name, each in schemas.items()), id="schemas")


def _schema(name: str, schema: Mapping[str, Any]) -> Html:
    rules = {key: schema[key] for key in ("not", "if", "then") if key in schema}
    return h(
        "details",
        h("summary", h("code", name)),
        h("p", schema["description"]) if "description" in schema else None,
        fields_of(schema) if "properties" in schema else h("p", kind_of(schema)),
        h("div", h("p", "Besides:"), h("pre", json.dumps(rules, indent=2))) if rules else None,
        id=f"schema-{name}",
        class_="schema",
    )


def _badge(method: str) -> Html:
    return h("span", method, class_=f"method {method.lower()}")


def _finds(operation: Operation) -> str:
    """What the filter looks in."""
    method, path, told = operation
    return f"{method} {path} {told['summary']} {told['operationId']}".lower()
