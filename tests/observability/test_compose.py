"""compose.yaml, as far as it can be checked where no containers run: what it names exists, and fits together.

It was checked once against the Compose specification's schema; that is not repeated here, because nobody ships it.
"""

import os
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.api.running import TIDEQ, environ, tideq
from tests.observability.promtool import ROOT, needs_promtool, promtool
from tests.stores import StoreUnderTest
from tideq.api.settings import read_service_settings
from tideq.cli.commands import app

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("tideq/")]
COLLECTOR = ROOT / "docs/compose/otel-collector.yaml"
PINNED = re.compile(r"[\w./-]+:v?\d+(\.\d+)*(-\w+)?")


def test_everything_is_there() -> None:
    assert {"valkey", "postgres", "api", "monitor", "replicator", "jaeger", "prometheus", "grafana"} <= set(SERVICES)


def test_images_are_pinned_and_the_stores_are_the_charts() -> None:
    chart = yaml.safe_load((ROOT / "helm/values.yaml").read_text())

    for name, service in SERVICES.items():
        assert name in OURS or PINNED.fullmatch(service["image"]), service["image"]
    for service, part in (("valkey", "valkey"), ("postgres", "postgresql")):
        image = chart[part]["image"]
        assert SERVICES[service]["image"].endswith(f"/{image['repository']}:{image['tag']}")


def test_nothing_is_reached_from_outside_the_machine() -> None:
    for service in SERVICES.values():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), port


@pytest.mark.parametrize("name", OURS)
def test_our_services_get_settings_they_know_and_stores_that_run(name: str) -> None:
    environment = SERVICES[name]["environment"]

    settings = read_service_settings({key: str(value) for key, value in environment.items()})

    assert settings.redis_url.startswith("redis://valkey:")
    assert "@postgres:" in settings.history.database_url
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://jaeger:4318"


@pytest.mark.parametrize("name", [name for name in OURS if "entrypoint" not in SERVICES[name]])
def test_our_commands_take_the_options_they_are_given(name: str) -> None:
    """Parsed and not run: an option that does not exist is an error here."""
    app.parse_args(SERVICES[name]["command"], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("scraper", ["prometheus", "otel-collector"])
def test_what_listens_is_scraped(scraper: str) -> None:
    jobs = _scrapes(scraper)["scrape_configs"]

    assert {target for job in jobs for target in job["static_configs"][0]["targets"]} == {
        _listens("api", "--port"),
        _listens("monitor", "--health-port"),
        _listens("replicator", "--health-port"),
    }


def test_health_is_asked_where_it_is_told() -> None:
    """The image asks the API's port unless it is told another."""
    for name in ("monitor", "replicator"):
        port = _listens(name, "--health-port").partition(":")[2]
        assert SERVICES[name]["environment"]["HEALTH_URL"] == f"http://127.0.0.1:{port}/livez"


def test_the_image_is_built_from_what_is_there() -> None:
    build = SERVICES["prepare"]["build"]

    assert (ROOT / build["context"] / build["dockerfile"]).is_file()


def test_what_is_mounted_is_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (ROOT / source).is_file() if source.startswith(".") else source in COMPOSE["volumes"], volume


def test_preparing_makes_four_keys_and_the_schema(store: StoreUnderTest, database_url: str, tmp_path: Path) -> None:
    """The script as it stands, with folders of ours in place of its volumes."""
    (script,) = SERVICES["prepare"]["command"]
    for folder in ("keys", "scrape"):
        (tmp_path / folder).mkdir()
        script = script.replace(f"/{folder}", str(tmp_path / folder))
    path = f"{Path(TIDEQ).parent}:{os.environ['PATH']}"
    settings = environ(store.url, uuid.uuid4().hex[:12], DATABASE_URL=database_url, PATH=path)

    words = [*SERVICES["prepare"]["entrypoint"], script.replace("$$", "$")]
    done = subprocess.run(words, env=settings, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 0, done.stderr
    listed = tideq(settings, "keys", "list", "--output", "json").stdout
    assert sorted(key["role"] for key in msgspec.json.decode(listed)) == ["admin", "producer", "viewer", "worker"]
    assert (tmp_path / "scrape/viewer").read_text() == (tmp_path / "keys/viewer").read_text()


def test_services_wait_for_services_that_exist() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= set(SERVICES)


@needs_promtool
@pytest.mark.parametrize("scraper", ["prometheus", "otel-collector"])
def test_prometheus_takes_the_configuration_of_scrapes(tmp_path: Path, scraper: str) -> None:
    written = tmp_path / "prometheus.yaml"
    text = yaml.safe_dump(_scrapes(scraper))
    written.write_text(text.replace("/etc/prometheus/alerts.yaml", str(ROOT / "helm/files/alerts.yaml")))

    checked = promtool("check", "config", "--syntax-only", str(written))

    assert checked.returncode == 0, checked.stderr.decode()


def test_the_collector_has_a_part_for_every_place_in_its_pipeline_and_is_documented_as_it_is() -> None:
    text = COLLECTOR.read_text()
    collector = yaml.safe_load(text)
    (pipeline,) = collector["service"]["pipelines"].values()
    endpoint = collector["exporters"]["otlp_http"]["endpoint"]

    assert pipeline == {kind: list(collector[kind]) for kind in ("receivers", "processors", "exporters")}
    assert endpoint.removeprefix("${env:").removesuffix("}") in SERVICES["otel-collector"]["environment"]
    assert text.partition("\n")[2].strip() in (ROOT / "docs/observability.md").read_text()


def test_grafana_finds_its_sources_and_the_dashboard() -> None:
    sources = yaml.safe_load((ROOT / "docs/compose/grafana-datasources.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((ROOT / "docs/compose/grafana-dashboards.yaml").read_text())["providers"]
    mounts = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]

    assert {source["url"].split("/")[2].split(":")[0] for source in sources} == {"prometheus", "jaeger"}
    assert any(mount.startswith(provider["options"]["path"]) for mount in mounts)


def _scrapes(scraper: str) -> dict[str, Any]:
    """The configuration in Prometheus's own form, which the collector's receiver holds as it is."""
    if scraper == "otel-collector":
        return yaml.safe_load(COLLECTOR.read_text())["receivers"]["prometheus"]["config"]
    return yaml.safe_load((ROOT / "docs/compose/prometheus.yaml").read_text())


def _listens(name: str, option: str) -> str:
    command = SERVICES[name]["command"]
    return f"{name}:{command[command.index(option) + 1]}"
