"""What the migration relies on: keys made elsewhere are let in once, and an older version bears a newer schema."""

import secrets
import uuid

import pytest

from tests.kit import Kit
from tideq.persistence.database import Database
from tideq.persistence.schema.migrations import MigrationError, migrate, missing_migrations, missing_when_migrated
from tideq.queue_core.errors import InvalidRequest
from tideq.queue_core.store.access_keys import AccessKeys, matching


def _new_key() -> str:
    return f"tq_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"


@pytest.fixture
def keys(kit: Kit) -> AccessKeys:
    return AccessKeys(kit.client, kit.keys)


async def test_an_adopted_key_opens_the_door(keys: AccessKeys) -> None:
    key_text = _new_key()
    await keys.adopt(key_text, "billing.producer", "producer", 0)

    (known,) = await keys.all()

    found = matching(key_text, {known.key_id: known})
    assert found is not None
    assert (found.name, found.role) == ("billing.producer", "producer")


async def test_a_revoked_key_stays_out_however_often_it_is_adopted(keys: AccessKeys) -> None:
    key_text = _new_key()
    adopted = await keys.adopt(key_text, "admin", "admin", 0)
    await keys.revoke(adopted.key_id)

    again = await keys.adopt(key_text, "admin", "admin", 1)

    assert again.is_revoked
    assert [key.is_revoked for key in await keys.all()] == [True]


@pytest.mark.parametrize("change", ["secret", "role"])
async def test_a_known_id_with_another_secret_or_role_is_refused(keys: AccessKeys, change: str) -> None:
    key_text = _new_key()
    await keys.adopt(key_text, "worker", "worker", 0)
    other = f"{key_text[:16]}{secrets.token_urlsafe(32)}" if change == "secret" else key_text

    with pytest.raises(InvalidRequest, match="another"):
        await keys.adopt(other, "worker", "worker" if change == "secret" else "admin", 1)


@pytest.mark.parametrize(
    ("key_text", "role", "complaint"),
    [("nonsense", "admin", "is not tq_<12 hex digits>_"), (_new_key(), "captain", "'captain' is not one of")],
    ids=["no key", "no role"],
)
async def test_what_is_no_key_is_refused_and_not_repeated(
    keys: AccessKeys, key_text: str, role: str, complaint: str
) -> None:
    with pytest.raises(InvalidRequest, match=complaint) as refusal:
        await keys.adopt(key_text, role, role, 0)

    assert key_text not in str(refusal.value)


async def test_a_version_that_was_gone_back_to_works_on_the_newer_schema(database_url: str) -> None:
    async with Database(database_url, uuid.uuid4().hex[:12]) as database:
        await migrate(database)
        async with database.session() as connection:
            await connection.execute("INSERT INTO migrations (number, name, digest) VALUES (9999, 'later', 'x')")

        for verb in (migrate, missing_migrations):
            with pytest.raises(MigrationError, match="which this version lacks"):
                await verb(database)
            assert await verb(database, allow_newer=True) == []


async def test_who_waits_for_a_schema_nobody_makes_is_told_what_is_missing(database_url: str) -> None:
    async with Database(database_url, uuid.uuid4().hex[:12]) as database:
        assert (await missing_when_migrated(database, 0.1))[0].number == 1
