"""Settings: read from the environment, and a wrong one is named."""

import pytest

from tideq.queue_core.settings import FORMER_NAMES, QUEUE_SETTINGS, QueueSettings, SettingsError, read_settings


def test_an_empty_environment_gives_the_defaults() -> None:
    assert read_settings({"PATH": "/bin"}) == QueueSettings()


def test_seconds_become_milliseconds() -> None:
    settings = read_settings({"TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS": "1.5", "TIDEQ_RETRY_CAP_SECONDS": "60"})

    assert settings.leases.assignment_ms == 1_500
    assert settings.backoff.cap_ms == 60_000


def test_a_priority_level_can_be_added() -> None:
    settings = read_settings({"TIDEQ_PRIORITIES": "urgent=-50:9:60", "TIDEQ_DEFAULT_PRIORITY": "urgent"})

    assert settings.priorities["urgent"].offset_ms == -50_000
    assert settings.priorities["urgent"].timeout_ms == 60_000
    assert "medium" in settings.priorities


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TIDEQ_DEPTH_REFUSE_LOV", "5", "did you mean TIDEQ_DEPTH_REFUSE_LOW"),
        ("TIDEQ_DEPTH_REFUSE_LOW", "many", "TIDEQ_DEPTH_REFUSE_LOW='many'"),
        ("TIDEQ_DEPTH_REFUSE_LOW", "-1", "zero or a positive"),
        ("TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS", "0", "positive number of seconds"),
        ("TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS", "nan", "positive number of seconds"),
        ("TIDEQ_MAX_MEMORY_RATIO", "1.5", "between 0 and 1"),
        ("TIDEQ_DEFAULT_PRIORITY", "urgent", "not a priority level"),
        ("TIDEQ_PRIORITIES", "urgent", "TIDEQ_PRIORITIES"),
        ("TIDEQ_PRIORITIES", "very high=0:3:60", "'very high' is not a name"),
        ("TIDEQ_PRIORITIES", "a:b=0:3:60", "'a:b' is not a name"),
        ("TIDEQ_PRIORITIES", "a=0:3", "is not name="),
        ("TIDEQ_PRIORITIES", "=0:3:60", "'' is not a name"),
        ("TIDEQ_PRIORITIES", "urgent=inf:3:60", "an offset of inf seconds"),
        ("TIDEQ_PRIORITIES", "urgent=nan:3:60", "an offset of nan seconds"),
        ("TIDEQ_PRIORITIES", "urgent=0:1001:60", "1001 retries"),
        ("TIDEQ_PRIORITIES", "urgent=0:3:1e9", "positive number of seconds"),
        ("TIDEQ_PRIORITIES", "urgent=0:3:90000", "longer than TIDEQ_MAX_EXECUTION_SECONDS"),
        ("TIDEQ_DEPTH_EXEMPT_CLIENTS", "billing,two words", "'two words' is not a name"),
        ("TIDEQ_QUEUE", "q?", "TIDEQ_QUEUE='q\\?'"),
        ("TIDEQ_QUEUE", "", "at most 50"),
        ("TIDEQ_QUEUE", "a" * 51, "at most 50"),
        ("TIDEQ_QUEUE", "queue\n", "at most 50"),
        ("TIDEQ_DEPTH_REFUSE_ALL", "10", "must rise"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read_settings({name: value})


@pytest.mark.parametrize("name", FORMER_NAMES)
def test_a_former_name_of_a_setting_is_read_and_refused_beside_the_present_one(name: str) -> None:
    value = "ann" if name == "TIDEQ_LISTED_CLIENTS" else "500000"

    assert read_settings({name: value}) == read_settings({FORMER_NAMES[name]: value})
    with pytest.raises(SettingsError, match="set one of them"):
        read_settings({name: value, FORMER_NAMES[name]: value})


def test_the_default_timeouts_are_no_longer_than_the_longest_execution() -> None:
    settings = read_settings({"TIDEQ_MAX_EXECUTION_SECONDS": "400", "TIDEQ_PRIORITIES": "urgent=0:3:399"})

    assert {name: level.timeout_ms for name, level in settings.priorities.items()} == {
        "high": 300_000,
        "medium": 400_000,
        "low": 400_000,
        "urgent": 399_000,
    }


def test_every_setting_names_a_field_that_exists() -> None:
    defaults = QueueSettings()

    for setting in QUEUE_SETTINGS.values():
        section = getattr(defaults, setting.section) if setting.section else defaults
        assert hasattr(section, setting.field)
