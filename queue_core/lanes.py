"""Lane signatures, which group waiting tasks, and worker profiles, which match them. Pure.

A lane is a pair (task type, sorted required capabilities). Signature and profile are both written as `type|cap,cap`,
also in the store: the form of names makes the text unambiguous.
"""

from collections.abc import Iterable

ANY_TYPE = "*"


def lane_signature(task_type: str, required_capabilities: Iterable[str]) -> str:
    return f"{task_type}|{','.join(sorted(set(required_capabilities)))}"


def worker_profile(task_types: Iterable[str] | None, capabilities: Iterable[str]) -> str:
    """Returns the types and capabilities as one text. Workers with equal profiles share a cached list of lanes."""
    types = ANY_TYPE if task_types is None else ",".join(sorted(set(task_types)))
    return f"{types}|{','.join(sorted(set(capabilities)))}"


def task_type_of(signature: str) -> str:
    return signature.partition("|")[0]


def serves(profile: str, signature: str) -> bool:
    types, _, capabilities = profile.partition("|")
    task_type, _, required = signature.partition("|")
    return (types == ANY_TYPE or task_type in types.split(",")) and (
        not required or set(required.split(",")) <= set(capabilities.split(","))
    )
