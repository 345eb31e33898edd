"""Guessing keys: every guess costs the same work, whatever is right about it."""

import inspect

import msgspec
import pytest

from tideq.api.edge.auth import Authenticator
from tideq.api.edge.problems import Unauthorized
from tideq.api.service import Service
from tideq.queue_core.errors import InvalidRequest
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store import access_keys
from tideq.queue_core.store.access_keys import AccessKeys

GUESSES = ("nothing", "no key at all", "unknown id", "right id", "almost right", "another key's secret", "revoked")


class Comparing:
    """`hmac`, and what it was asked to compare."""

    def __init__(self) -> None:
        self.lengths: list[tuple[int, int]] = []

    def compare_digest(self, one: str, other: str) -> bool:
        self.lengths.append((len(one), len(other)))
        return one == other


class Counted(AccessKeys):
    count = 0

    async def all(self) -> list[access_keys.AccessKey]:
        self.count += 1
        return await super().all()


async def _guess(service: Service, kind: str) -> str:
    key, other = await service.access_keys.create("a", "admin", 0), await service.access_keys.create("b", "admin", 0)
    key_id, secret = key.split("_", 2)[1:]
    if kind == "revoked":
        await service.access_keys.revoke(key_id)
    return {
        "nothing": "",
        "no key at all": "x" * 500,
        "unknown id": f"tq_{'0' * 12}_{secret}",
        "right id": f"tq_{key_id}_{'A' * 43}",
        "almost right": f"tq_{key_id}_{secret[:-1]}{'A' if secret[-1] != 'A' else 'B'}",
        "another key's secret": f"tq_{key_id}_{other.split('_', 2)[2]}",
        "revoked": key,
    }[kind]


@pytest.mark.parametrize("kind", GUESSES)
async def test_a_guess_costs_one_look_and_one_comparison_of_digests(
    service: Service, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    guess, comparing = await _guess(service, kind), Comparing()
    keys = Counted(service.client, Keys(service.settings.queue.queue_name))
    monkeypatch.setattr(access_keys, "hmac", comparing)

    with pytest.raises(Unauthorized) as refusal:
        await Authenticator(keys, auth_disabled=False).caller({"authorization": f"Bearer {guess}"})

    assert str(refusal.value) == "the key is unknown or revoked", "what is wrong about it is not told"
    assert keys.count == 1
    assert comparing.lengths == [(64, 64)], "digests, so not even the length of a secret shows"


def test_keys_are_compared_by_what_takes_the_same_time() -> None:
    assert access_keys.hmac.__name__ == "hmac"
    assert "hmac.compare_digest(" in inspect.getsource(access_keys.matching)


async def test_what_is_kept_of_a_key_is_its_digest(service: Service) -> None:
    key = await service.access_keys.create("a", "admin", 0)

    (kept,) = await service.access_keys.all()

    assert key.split("_", 2)[2] not in repr(kept)
    assert len(kept.digest) == 64


async def test_a_key_that_cannot_be_read_shuts_nobody_else_out(service: Service) -> None:
    keys = service.access_keys
    await keys.create("ann", "admin", 0)
    await service.client.hset(Keys(service.settings.queue.queue_name).key("access_keys"), "0" * 12, b"{not a key")

    assert [key.name for key in await keys.all()] == ["ann"]
    with pytest.raises(InvalidRequest, match="cannot be read"):
        await keys.revoke("0" * 12)


async def test_fields_of_a_later_version_stay_with_a_key_that_is_changed(service: Service) -> None:
    keys, name = service.access_keys, Keys(service.settings.queue.queue_name).key("access_keys")
    key_id = (await keys.create("ann", "admin", 0)).split("_")[1]
    kept = msgspec.json.decode(await service.client.hget(name, key_id))
    await service.client.hset(name, key_id, msgspec.json.encode({**kept, "expires_ms": 7}))

    await keys.revoke(key_id)

    assert msgspec.json.decode(await service.client.hget(name, key_id)) == {**kept, "expires_ms": 7, "is_revoked": True}
