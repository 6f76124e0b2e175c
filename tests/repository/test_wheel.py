"""What goes into the wheel, and what it can do by itself."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from edgewise.errors import EdgewiseError
from edgewise_studies import run
from edgewise_studies.papers.osdec import TRAINED

ROOT = Path(__file__).resolve().parents[2]
LARGEST_BYTES = 3_705_000  # 2.3 MB of it are policies that are trained already
FRESH = (2_000_000,)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheels of edgewise and of the studies, built as `pip wheel` builds them."""
    folder = tmp_path_factory.mktemp("wheel")
    for project in (ROOT, ROOT / "studies"):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=project, check=True, capture_output=True)
    edgewise, studies = sorted(folder.glob("*.whl"))
    return edgewise, studies


def test_built_twice_wheel_and_source_distribution_are_the_same_bytes(tmp_path):
    """At another time, in another folder, under another umask."""
    built = []
    for name, umask in (("one", 0o022), ("other", 0o077)):
        copy = tmp_path / name
        kept = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / "edgewise", copy / "src" / "edgewise", ignore=kept)
        for file in ("pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "SECURITY.md",
                     "constraints.txt"):  # fmt: skip
            shutil.copy(ROOT / file, copy)
        for file in copy.rglob("*"):
            os.utime(file, (len(built) * 1e6, len(built) * 1e6))
        build = [sys.executable, "-m", "hatchling", "build", "-d", str(copy / "dist")]
        own = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
        subprocess.run(build, cwd=copy, check=True, capture_output=True, umask=umask, env=own)
        built.append({file.name: file.read_bytes() for file in (copy / "dist").iterdir()})
    one, other = built
    assert sorted(Path(name).suffix for name in one) == [".gz", ".whl"] and one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []


def test_the_table_of_extras_has_them_all_and_all_has_what_it_says():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\S+)` \|", page, re.MULTILINE)
    developing = {"bench", "beds", "dev", "dev-learn", "docs"}
    assert {*rows} == extras.keys() - developing and all(f"`{name}`" in page for name in developing)
    above = rows[: rows.index("all")]
    assert sorted(extras["all"]) == sorted(f"edgewise[{name}]" for name in above)


@pytest.fixture
def wheel(wheels):
    return wheels[0]


def test_the_wheel_is_small_and_holds_what_is_used_after_installing(wheel):
    assert wheel.stat().st_size <= LARGEST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        files = {name.removeprefix("edgewise/") for name in archive.namelist()}
    assert {"data/policies/defer/osdec.onnx.xz", "data/scenarios/tiny.yaml", "cli/__init__.py"} <= files
    evidence = {path.name for path in (ROOT / "docs/results/osdec/training").iterdir()}
    assert not [name for name in files if "studies" in name or "reproduce" in name]
    assert len(evidence) > 100 and evidence.isdisjoint(Path(name).name for name in files)


def test_wheels_measure_quickly_with_the_policies_that_ship(wheels, tmp_path):
    for each in wheels:
        with zipfile.ZipFile(each) as archive:
            archive.extractall(tmp_path / "packages")
    own = {name: value for name, value in os.environ.items() if name != "EDGEWISE_EVIDENCE"}
    done = subprocess.run(
        [sys.executable, "-m", "edgewise", "reproduce", "osdec", "--quick", "--seeds", "2000000:2000001"],
        cwd=tmp_path,
        env=own | {"PYTHONPATH": str(tmp_path / "packages"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    claims = json.loads((tmp_path / "runs/reproduce-osdec/claims.json").read_text())["claims"]
    left_out = {claim["id"]: claim["detail"] for claim in claims if claim["status"] == "not_in_quick"}
    assert set(left_out) == TRAINED and all("--evidence" in why for why in left_out.values())
    assert "ablation" in done.stdout.splitlines()[-2] and "--evidence" in done.stdout


def test_without_training_runs_a_whole_run_is_refused(tmp_path):
    """Before anything is measured: a look at test seeds is not used up."""
    with pytest.raises(EdgewiseError) as refused:
        run.carry_out("osdec", tmp_path, tmp_path / "results")
    assert all(id in str(refused.value) for id in TRAINED)
    assert "source repository" in str(refused.value) and not (tmp_path / "results").exists()


@pytest.mark.parametrize("quick", [False, True])
def test_a_folder_without_training_runs_is_named(quick, tmp_path):
    with pytest.raises(EdgewiseError) as refused:
        run.carry_out("osdec", tmp_path, tmp_path, evidence=tmp_path / "elsewhere", quick=quick, seeds=FRESH)
    said = str(refused.value)
    assert "elsewhere/osdec/training" in said and all(id in said for id in TRAINED)
    assert "--evidence CHECKOUT/docs/results" in said


def test_a_method_without_training_runs_is_named(tmp_path):
    (tmp_path / "osdec" / "training").mkdir(parents=True)
    with pytest.raises(EdgewiseError, match=r"reinforce-0\.json and its like are missing"):
        run.carry_out("osdec", tmp_path, tmp_path, evidence=tmp_path, seeds=FRESH)
