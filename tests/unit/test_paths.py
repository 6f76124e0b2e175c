"""Paths in files begin in the folder of their file, wherever one stands."""

import shutil
from pathlib import Path

import pytest
import yaml

from edgewise import policies
from edgewise.config import dump_scenario, load_catalog, load_scenario
from edgewise.errors import PolicyError
from edgewise.policies.cards import SHIPPED
from edgewise.runtime.controller.models import write_stand_in
from edgewise.runtime.controller.plan import prepare

CARD = SHIPPED / "kais" / "kais-scarce.json"
CATALOG = {
    "models": [{"name": "echo", "task": "score", "accuracy": 50}],
    "variants": [
        {
            "name": "echo-cpu", "model": "echo", "resources": {"cpu_cores": 1}, "largest_bytes": 1000,
            "profile": {"fixed_s": 0.003, "source": "made up"}, "file": "networks/echo.onnx",
        }
    ],
}  # fmt: skip
PLACE = {
    "name": "small", "duration_s": 60,
    "clusters": [{"name": "near", "tier": 0, "nodes": [{"name": "n", "resources": {"cpu_cores": 9}}]}],
    "sites": [{"name": "site", "uplink_bps": 1e9}],
    "links": [{"site": "*", "cluster": "near", "delay_s": 0.001}],
    "workers": [{"variant": "echo-cpu", "cluster": "near"}],
    "streams": {
        "applications": [{"name": "any", "task": "score", "rate_qps": 10, "size_bytes": 100,
                          "deadline_s": 5, "length_s": 60}],
        "arrivals": {"clients_per_min": 1},
    },
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Scenarios in `mine`, a catalog in `mine/catalogs`, each with its networks; we stand elsewhere."""
    mine, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    for place in (mine, mine / "catalogs"):
        (place / "networks").mkdir(parents=True)
        write_stand_in(place / "networks" / "echo.onnx")
    (mine / "catalogs" / "mine.yaml").write_text(yaml.safe_dump(CATALOG))
    (mine / "whole.yaml").write_text(yaml.safe_dump(PLACE | {"catalog": CATALOG}))
    (mine / "uses.yaml").write_text(yaml.safe_dump(PLACE | {"catalog": {"use": "catalogs/mine.yaml"}}))
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return mine


@pytest.mark.parametrize(("name", "place"), [("whole", "."), ("uses", "catalogs")])
@pytest.mark.parametrize("settings", [{}, {"catalog.variants.echo-cpu.max_batch": 2}])
def test_a_network_is_sought_in_the_folder_of_the_file_that_names_it(folder, name, place, settings):
    scenario = load_scenario(Path("../mine") / f"{name}.yaml", settings)
    expected = (folder / place / "networks" / "echo.onnx").resolve()
    assert Path(scenario.catalog.variants[0].file).resolve() == expected
    store = prepare(Path("state"), scenario, gateways=1)
    files = [row.process.settings["file"] for row in store.processes("worker")]
    store.close()
    assert files == [str(expected)]
    (folder.parent / "third.yaml").write_text(dump_scenario(scenario))  # as a running system keeps it
    again = load_scenario(folder.parent / "third.yaml").catalog.variants[0].file
    assert Path(again).resolve() == expected


def test_a_catalog_by_itself_names_its_networks_too(folder):
    variant = load_catalog("../mine/catalogs/mine.yaml").variants[0]
    assert Path(variant.file).resolve() == (folder / "catalogs" / "networks" / "echo.onnx").resolve()


def test_a_card_of_a_scenario_s_services_is_sought_there(folder):
    for file in CARD.parent.glob(f"{CARD.stem}.*"):
        shutil.copy(file, folder)
    plain = yaml.safe_load(dump_scenario(load_scenario("kais-live")))
    plain["policies"]["requests"] = CARD.name
    (folder / "services.yaml").write_text(yaml.safe_dump(plain))
    named = load_scenario("../mine/services.yaml").spec.policies.requests
    assert policies.load("requests", named, live=True).name == CARD.stem


def test_a_file_that_is_no_card_is_one_message(tmp_path):
    for text in ("no JSON", "[]", '{"name": "x"}'):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(PolicyError, match="is no card; give what edgewise train wrote"):
            policies.load("requests", str(tmp_path / "x.json"))
