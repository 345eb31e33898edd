"""Values that contradict each other are refused before anything is changed, with a sentence that says what to do."""

from typing import Any

import pytest

from tests.helm.chart import SCENARIOS, refusal

WORKER: dict[str, Any] = {"handlers": "tasks"}
NO_VALKEY: dict[str, Any] = {"valkey": {"enabled": False}}

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "two stores": (
        {"redis": {"url": "redis://elsewhere"}},
        "There are two stores: valkey.enabled and redis.url. Keep one",
    ),
    "two databases": (
        {"postgres": {"existingSecret": "mine"}},
        "There are two stores: postgresql.enabled and postgres.existingSecret. Keep one",
    ),
    "Secret and URL": (
        {"redis": {"url": "redis://elsewhere", "existingSecret": "mine"}, **NO_VALKEY},
        "There are two stores: redis.existingSecret and redis.url",
    ),
    "no store": (NO_VALKEY, "There is no store: set redis.existingSecret"),
    "no database": ({"postgresql": {"enabled": False}}, "There is no store: set postgres.existingSecret"),
    "two bundled": ({"valkey": {"replicas": 2}}, "the bundled store does not replicate. Leave it at 1"),
    "a password in sight": (
        {"redis": {"url": "redis://:secret@elsewhere"}, **NO_VALKEY},
        "Put the URL into a Secret and name it: redis.existingSecret",
    ),
    "sentinels of nothing": (
        {"redis": {"url": "redis+sentinel://a:26379,b:26379"}, **NO_VALKEY},
        "Let it end with the service's name",
    ),
    "a CA without TLS": (
        {"redis": {"url": "redis://elsewhere", "caSecret": "ca"}, **NO_VALKEY},
        "Begin it with rediss://, or unset redis.caSecret",
    ),
    "a CA nobody reads": (
        {"redis": {"url": "rediss://elsewhere", "caSecret": "ca"}, **NO_VALKEY},
        "Let redis.url end with ?ssl_ca_certs=/etc/tideq/redis-ca/ca.crt",
    ),
    "a CA for the bundled store": ({"redis": {"caSecret": "ca"}}, "the bundled one speaks no TLS"),
    "no keys": ({"auth": {"generate": False}}, "There are no keys, and the service does not listen without: set auth"),
    "API killed while it answers": (
        {"api": {"terminationGracePeriodSeconds": 10}},
        "the API takes up to 10 s to stop",
    ),
    "API least above most": ({"api": {"hpa": {"enabled": True, "minReplicas": 20}}}, "Swap them"),
    "drain longer than grace": (
        {"workers": {"w": {**WORKER, "drainSeconds": 100, "terminationGracePeriodSeconds": 60}}},
        "Raise it to 115, lower workers.w.drainSeconds, or leave it null",
    ),
    "drain as long as grace": (
        {"workers": {"w": {**WORKER, "drainSeconds": 100, "terminationGracePeriodSeconds": 104}}},
        "they would be killed",
    ),
    "HPA and KEDA": (
        {"workers": {"w": {**WORKER, "hpa": {"enabled": True}, "keda": {"enabled": True}}}},
        "Turn workers.w.hpa.enabled or workers.w.keda.enabled off",
    ),
    "worker least above most": (
        {"workers": {"w": {**WORKER, "keda": {"enabled": True, "minReplicas": 50}}}},
        "workers.w.keda.minReplicas is greater than workers.w.keda.maxReplicas",
    ),
    "HPA to zero": (
        {"workers": {"w": {**WORKER, "hpa": {"enabled": True, "minReplicas": 0}}}},
        "Use keda to let the last pod go",
    ),
    "workers without work": ({"workers": {"w": {}}}, "Set workers.w.handlers"),
    "an image without a version": (
        {"workers": {"w": {**WORKER, "image": {"repository": "my/app"}}}},
        "Set workers.w.image.tag or workers.w.image.digest",
    ),
    "an ingress to nowhere": ({"ingress": {"enabled": True}}, "Set ingress.hosts"),
    "a route to nowhere": ({"httpRoute": {"enabled": True}}, "Set httpRoute.parentRefs"),
    "long polls cut off": ({"httpRoute": {"requestTimeoutSeconds": 30}}, "Set it above 30"),
}
UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt role's key": ({"api": {"replcas": 2}}, "/api/replcas"),
    "a misspelt worker's key": ({"workers": {"w": {"handler": "x"}}}, "/workers/w/handler"),
    "a misspelt setting": ({"settings": {"TIDEQ_SOFTDEPTH": 1}}, "TIDEQ_SOFTDEPTH"),
    "a setting the chart has a value for": ({"settings": {"TIDEQ_PORT": 1}}, "TIDEQ_PORT"),
    "a misspelt section": ({"autoscaling": {}}, "autoscaling"),
    "another kind of store": ({"redis": {"url": "memcached://x"}}, "/redis/url"),
    "a set whose name is no label": ({"workers": {"Big_Set": WORKER}}, "Big_Set"),
    "a port that is none": ({"api": {"port": 70_000}}, "/api/port"),
    "a count as text": ({"api": {"replicas": "2"}}, "/api/replicas"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_contradiction_is_refused_with_what_to_do(case: str) -> None:
    values, sentence = CASES[case]

    assert sentence in refusal(**values)


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_value_nobody_reads_or_that_cannot_be_is_refused_by_its_name(case: str) -> None:
    values, name = UNKNOWN[case]

    said = refusal(**values)

    assert "values don't meet the specifications of the schema" in said
    assert name in said


def test_a_scenario_is_checked_like_anything_else() -> None:
    for scenario in set(SCENARIOS) - {"default"}:
        assert "additional properties 'nothing' not allowed" in refusal(scenario, nothing=1)
