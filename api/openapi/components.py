"""JSON Schemas of our structs, collected as they are referenced, with corrections that msgspec cannot make."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from tideq.api.schemas.base import RequestSchema, ResponseSchema
from tideq.queue_core.settings import QueueSettings

Schema = dict[str, Any]
REF = "#/components/schemas/"


class Components:
    def __init__(self, settings: QueueSettings) -> None:
        self.schemas: dict[str, Schema] = {}
        self._configured = _configured(settings)
        self._structs = _structs()

    def of(self, kind: Any) -> Schema:
        """The schema of a type, or `anyOf` for a tuple; structs and enums become references."""
        if isinstance(kind, tuple):
            choices = [self.of(each) for each in cast("tuple[Any, ...]", kind)]
            return choices[0] if len(choices) == 1 else {"anyOf": choices}
        (schema,), named = msgspec.json.schema_components([kind], ref_template=REF + "{name}")
        for name, found in named.items():
            self.schemas[name] = _amended(self._settled(found), self._structs.get(name))
        return self._settled(schema)

    def resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The referenced schema, overridden by the keys beside the reference."""
        if "$ref" not in schema:
            return schema
        return {**self.schemas[schema["$ref"].removeprefix(REF)], **{k: v for k, v in schema.items() if k != "$ref"}}

    def _settled(self, schema: Any) -> Any:
        """Converts patterns to JSON Schema's syntax, and fills in values from the settings."""
        if isinstance(schema, list):
            return [self._settled(each) for each in cast("list[Any]", schema)]
        if not isinstance(schema, dict):
            return schema
        settled = {key: self._settled(value) for key, value in cast("Schema", schema).items()}
        if isinstance(settled.get("pattern"), str):
            settled["pattern"] = settled["pattern"].replace("\\Z", "$")
        return settled | self._configured.get(str(settled.pop("configured", "")), {})


def _configured(settings: QueueSettings) -> dict[str, Schema]:
    return {
        "priorities": {"enum": sorted(settings.priorities)},
        "execution_seconds": {"maximum": settings.leases.max_execution_ms / 1000},
    }


def _amended(schema: Schema, struct: type[msgspec.Struct] | None) -> Schema:
    """A response's fields are always present, so it has no defaults; a request has rules between its fields."""
    if struct is None:
        return schema
    if issubclass(struct, RequestSchema):
        return schema | struct.also
    required = [field.encode_name for field in msgspec.structs.fields(struct) if field.default is not msgspec.UNSET]
    properties = {
        name: {k: v for k, v in each.items() if k != "default"} for name, each in schema["properties"].items()
    }
    return schema | {"required": required, "properties": properties}


def _structs() -> dict[str, type[msgspec.Struct]]:
    return {struct.__name__: struct for base in (ResponseSchema, RequestSchema) for struct in _descendants(base)}


def _descendants(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for child in struct.__subclasses__():
        yield child
        yield from _descendants(child)
