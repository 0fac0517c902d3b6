"""The files of deploy/: the unit, the compose file and the dashboard say only what there is."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from diptych.cli.main import load_command
from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings
from tests.web.models import own_folders, unchanged_index, vse_folder
from tests.web.serving import TOKEN, client

__all__ = ["own_folders", "unchanged_index", "vse_folder"]
DEPLOY = Path(__file__).parents[2] / "deploy"
# What systemd 252 knows of these sections, as far as a server may want it.
DIRECTIVES = {
    "Unit": "Description Documentation Wants Requires After Before StartLimitIntervalSec StartLimitBurst",
    "Service": "Type NotifyAccess ExecStart ExecStartPre ExecStartPost ExecReload Environment EnvironmentFile User "
    "Group StateDirectory CacheDirectory RuntimeDirectory WorkingDirectory UMask LimitNOFILE KillMode TimeoutStartSec "
    "TimeoutStopSec Restart RestartSec ProtectSystem ProtectHome PrivateTmp PrivateDevices NoNewPrivileges "
    "CapabilityBoundingSet AmbientCapabilities ProtectClock ProtectControlGroups ProtectHostname ProtectKernelLogs "
    "ProtectKernelModules ProtectKernelTunables ProtectProc RemoveIPC RestrictAddressFamilies RestrictNamespaces "
    "RestrictRealtime RestrictSUIDSGID LockPersonality SystemCallArchitectures SystemCallFilter SystemCallErrorNumber",
    "Install": "WantedBy",
}


def unit() -> dict[str, dict[str, str]]:
    """The sections of the unit; a directive that stands twice is a mistake."""
    sections: dict[str, dict[str, str]] = {}
    for line in (DEPLOY / "diptych.service").read_text().splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = sections.setdefault(header[1], {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            assert name not in section, name
            section[name] = value
    return sections


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return read


def checked(arguments: list[str]) -> dict[str, Any]:
    """The values that `diptych` would run with; an option that it does not have is an error."""
    command = load_command(arguments[0])
    return dict(command.make_context(arguments[0], arguments[1:]).params)


def test_every_directive_of_the_unit_is_known() -> None:
    sections = unit()
    assert sections.keys() == DIRECTIVES.keys()
    for name, section in sections.items():
        assert section.keys() <= set(DIRECTIVES[name].split()), name
    program, *arguments = sections["Service"]["ExecStart"].split()
    assert program.endswith("/bin/diptych")
    values = checked(arguments)
    # Where the unit lets it write.
    assert sections["Service"]["StateDirectory"] == "diptych"
    assert {str(Path(values[name]).parent) for name in ("index", "uploads")} == {"/var/lib/diptych"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there to verify the unit")
def test_systemd_has_nothing_to_say_against_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "diptych.service").read_text()
    (tmp_path / "diptych.service").write_text(re.sub(r"(?<=ExecStart=)\S+", sys.executable, text))
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "diptych.service")], capture_output=True, text=True
    )
    assert (told.returncode, told.stdout + told.stderr) == (0, "")


def test_the_compose_file_starts_what_there_is() -> None:
    services = compose()["services"]
    assert services.keys() == {"milvus", "index", "diptych"}
    serve, index = checked(services["diptych"]["command"]), checked(services["index"]["command"])
    assert str(serve["index"]) == str(index["index"]) == "milvus://milvus:19530/photos"
    assert services["diptych"]["ports"] == [f"127.0.0.1:8000:{serve['port']}"]
    assert serve["host"] == "0.0.0.0"
    assert "/ready" in services["diptych"]["healthcheck"]["test"][-1]
    compile(services["diptych"]["healthcheck"]["test"][-1], "healthcheck", "exec")
    for service in services.values():
        assert service.get("depends_on", {}).keys() <= services.keys()
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in compose()["volumes"] or source.startswith("${PICTURES"), volume
    context = DEPLOY / services["diptych"]["build"]["context"]
    assert (context / services["diptych"]["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"


def test_the_image_is_made_of_what_there_is() -> None:
    steps = re.sub(r"\\\n", "", (DEPLOY / "Dockerfile").read_text()).splitlines()
    for step in steps:
        if step.startswith("COPY "):
            for source in step.split()[1:-1]:
                assert (DEPLOY.parent / source).exists(), source
    extras = next(re.findall(r'"\.\[(.+)\]"', step)[0] for step in steps if "pip install" in step)
    described = (DEPLOY.parent / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = ", described, re.MULTILINE) for extra in extras.split(","))
    command = json.loads(next(step for step in steps if step.startswith("CMD ")).removeprefix("CMD "))
    assert checked(command)["host"] == "0.0.0.0"


def test_prometheus_asks_where_the_server_is() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    arguments = unit()["Service"]["ExecStart"].split()[1:]
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{checked(arguments)['port']}"]}]
    assert job["metrics_path"] == "/metrics"


def test_the_dashboard_shows_figures_that_there_are(unchanged_index: Index) -> None:
    app = create_app(ServerSettings(token=TOKEN), unchanged_index)
    web = client(app)
    assert web.get("/api/search", params={"q": "a dog"}).status_code == 200
    families = list(text_string_to_metric_families(web.get("/metrics").text))
    app.state.service.close()
    known = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(asked) > 20
    for expression in asked:
        names = re.findall(r"\b(?:diptych|process)_\w+", expression)
        assert names, expression
        assert set(names) <= known.keys(), expression
        labels = {label for some in re.findall(r"by \(([^)]*)\)", expression) for label in some.split(", ")}
        assert labels <= set().union(*(known[name] for name in names)), expression
        assert expression.count("(") == expression.count(")")
    shown = {name for expression in asked for name in re.findall(r"\bdiptych_\w+", expression)}
    told = {family.name for family in families if re.match(r"diptych_(?!\w+_created$)", family.name)}
    assert {name for name in told if not any(own.startswith(name) for own in shown)} == set()  # none is left out


def test_panels_do_not_lie_on_each_other() -> None:
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
