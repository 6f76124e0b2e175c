"""Trained policies by name and by path: what is wrong with a card is one line, and no trainer is imported."""

import json
import lzma
import shutil
import subprocess
import sys

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.defer import JobState
from edgewise.errors import PolicyError
from edgewise.policies.cards import SHIPPED
from edgewise.policies.defer import rules
from edgewise.policies.defer.rules import job_features
from edgewise.policies.requests.learned import golden_system, golden_view

CARDS = [
    ("dispatch", "chooser-any", "onnx.xz"),
    ("requests", "kais/kais-scarce", None),
    ("orchestrate", "kais/kais-scarce", None),
    ("defer", "defer/osdec", "onnx.xz"),
]


def copied(folder, name):
    for file in (SHIPPED / name).parent.glob(f"{(SHIPPED / name).name}.*"):
        shutil.copy(file, folder)
    return folder / f"{(SHIPPED / name).name}.json"


@pytest.mark.parametrize(("decision", "name", "network"), CARDS)
def test_a_card_is_a_policy_by_name_and_by_path_and_what_is_wrong_is_one_line(
    decision, name, network, tmp_path
):
    card = copied(tmp_path, name)
    assert policies.load(decision, str(card)).name == policies.load(decision, card.stem).name == card.stem
    assert card.stem in policies.names(decision)
    other = "defer" if decision != "defer" else "dispatch"

    def why(path=card, asked=decision):
        with pytest.raises(PolicyError) as found:
            policies.load(asked, str(path))
        assert "\n" not in str(found.value) and path.name.partition(".")[0] in str(found.value)
        return str(found.value)

    assert "no such file" in why(tmp_path / "gone.json")
    assert "not " + other in why(asked=other)
    about = json.loads(card.read_text())
    key = "features" if "features" in about else "features_sha256"
    card.write_text(json.dumps(about | {key: "other"}))
    assert "trained on other features" in why()
    for text in ("no JSON", "[]", "{}", json.dumps({"name": "x"})):
        card.write_text(text)
        assert "is no card; give what edgewise train wrote" in why()
    if network is None:
        return
    card.write_text(json.dumps(about))
    file = card.with_suffix(f".{network}")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    assert "not the file of its card" in why()
    file.unlink()
    assert "restore both from one source" in why()
    file.with_suffix("").write_bytes(lzma.decompress(content))
    assert policies.load(decision, str(card)).name == card.stem
    file.with_suffix("").write_bytes(lzma.decompress(content)[:-1000])
    assert "not the file of its card" in why()
    card.write_text(json.dumps({key: said for key, said in about.items() if key != "onnx_sha256"}))
    assert "onnxruntime can read" in why()


def test_golden_views_catch_features_that_mean_something_else_by_now(monkeypatch):
    policies.load("defer", "osdec")
    monkeypatch.setattr(rules, "job_features", lambda view: 1.1 * job_features(view))
    with pytest.raises(PolicyError, match="decides otherwise in the golden cases"):
        policies.load("defer", "osdec")


@pytest.mark.parametrize("decision", ["requests", "orchestrate"])
def test_cards_of_services_hold_what_is_decided_in_sixteen_views(decision, tmp_path):
    card = copied(tmp_path, "kais/kais-scarce")
    about = json.loads(card.read_text())
    golden = about[decision]["golden"]
    assert len(golden) == 16 and len({str(each) for each in golden}) > 8
    changed = (
        {"weights": [-w for w in about["requests"]["weights"]]}
        if decision == "requests"
        else {"time_s": about["orchestrate"]["time_s"][::-1]}
    )
    card.write_text(json.dumps(about | {decision: about[decision] | changed}))
    with pytest.raises(PolicyError, match="decides otherwise in the golden cases"):
        policies.load(decision, str(card))


def test_golden_views_of_services_are_possible():
    for services, site_of in ((3, [0, 0, 1]), (12, list(range(5)))):
        system = golden_system(services, np.array(site_of))
        view = golden_view(system)
        assert view.worlds == 16 and (view.busy <= view.ready).all() and (view.removing <= view.ready).all()
        assert ((view.head >= 0) == (view.site_queue > 0)).all() and (view.head >= 0).any(axis=1).any()
        assert (view.free_cpu_cores >= 0).all() and (view.free_memory_bytes <= system.memory_bytes).all()
        assert (view.starting[:, 0] == 0).all() and (view.removing[:, 0] == 0).all()


def test_a_card_holds_what_its_policy_decides_in_sixteen_views_that_are_possible():
    views = list(rules.golden_views())
    assert len(views) == 16 and {int(state) for view in views for state in view.state[0]} == {0, 1, 2, 3}
    for view in views:
        assert (view.submitted <= view.earliest).all() and (view.earliest <= view.latest).all()
        assert ((view.earliest <= view.now) | (view.state != JobState.STARTABLE)).all()
        assert ((view.ends > view.now) == (view.state == JobState.RUNNING)).all()
        assert view.past.shape == (1, view.now + 1, 1)


def test_running_cards_imports_no_trainer():
    code = f"""
import sys
from edgewise import policies
for decision, name in {[(d, name.rpartition("/")[2]) for d, name, _ in CARDS]}:
    policies.load(decision, name)
wrong = [name for name in sys.modules if name.startswith(("edgewise.learn", "torch", "gymnasium"))]
sys.exit(str(wrong) if wrong else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
