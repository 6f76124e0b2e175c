"""Seed splits, frozen scenarios, the log of looks, and how a reproduction is carried out."""

import ast
import hashlib
import json
import multiprocessing
import re
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from edgewise.config import dump_scenario, load_scenario
from edgewise.errors import EdgewiseError, RunError, ScenarioError
from edgewise.model.ranges import seeds_of
from edgewise.seeds import TEST, TRAINING, VALIDATION, kind_of, refuse_test_seeds
from edgewise_studies import frozen, looks, run
from edgewise_studies.claims import Claim, Finding, at_least, at_most, exact, measured
from edgewise_studies.papers import osdec

CODE = frozen.CodeVersion("1f" * 20, False, "0.1.0")
TEST_SEEDS = range(TEST.start, TEST.start + 3)


# --- seeds


def test_ranges_are_disjoint_and_everyday_seeds_are_not_for_testing():
    ends = [end for part in (TRAINING, VALIDATION, TEST) for end in (part.start, part.stop - 1)]
    assert ends == sorted(set(ends)) and ends[0] == 0
    assert {kind_of(seed) for seed in range(1000)} == {"training"}
    assert [kind_of(s) for s in (500_000, 1_000_000, 2_000_000)] == ["validation", "test", "fresh"]


def test_test_seeds_are_refused_with_an_explanation():
    refuse_test_seeds([0, 1, 999_999, 2_000_000])
    with pytest.raises(EdgewiseError, match=r"seed 1000000: .* only `edgewise reproduce`"):
        refuse_test_seeds(range(999_998, 1_000_002))


@pytest.mark.parametrize("text", ["5:1", "x", "-1:3", "1:2:3", "", "0.5"])
def test_bad_seeds(text):
    with pytest.raises(EdgewiseError, match="A:B"):
        seeds_of(text)


# --- frozen scenarios


def test_freeze_then_check(tmp_path):
    name, digest = frozen.freeze("tiny", tmp_path)
    text = (tmp_path / "frozen" / "tiny.yaml").read_bytes()
    assert name == "tiny" and hashlib.sha256(text).hexdigest() == digest
    entry = json.loads((tmp_path / "frozen.json").read_text())["tiny"]
    assert entry["sha256"] == digest and len(entry["date"]) == 10
    assert frozen.check_frozen(load_scenario("tiny"), tmp_path) == digest
    with pytest.raises(ScenarioError, match="'tiny': is frozen since"):
        frozen.freeze("tiny", tmp_path)
    frozen.freeze("three-tier", tmp_path)
    assert set(frozen.read_frozen(tmp_path)) == {"tiny", "three-tier"}


def changed(tmp_path, old, new):
    text = dump_scenario(load_scenario("tiny"))
    assert text.count(old) == 1
    (tmp_path / "mine.yaml").write_text(text.replace(old, new))
    return load_scenario(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("duration_s: 20.0", "duration_s: 21.0", r"duration_s was 20\.0, now 21\.0"),
        ("rate: 90.0", "rate: 80.0", r"arrivals\.clients_per_min\[1\]\.rate was 90\.0, now 80\.0"),
        ("    - at_s: 10.0\n      rate: 90.0\n", "", r"arrivals\.clients_per_min had 2 entries, now 1"),
    ],
)
def test_a_changed_scenario_is_refused_and_the_key_named(tmp_path, old, new, message):
    frozen.freeze("tiny", tmp_path)
    with pytest.raises(ScenarioError, match=message) as error:
        frozen.check_frozen(changed(tmp_path, old, new), tmp_path)
    assert "another `name`" in str(error.value)


def test_a_tampered_copy_does_not_help(tmp_path):
    frozen.freeze("tiny", tmp_path)
    scenario = changed(tmp_path, "rate: 90.0", "rate: 80.0")
    (tmp_path / "frozen" / "tiny.yaml").write_text(dump_scenario(scenario))
    with pytest.raises(ScenarioError, match="was changed after it was frozen"):
        frozen.check_frozen(scenario, tmp_path)
    (tmp_path / "frozen" / "tiny.yaml").unlink()
    with pytest.raises(ScenarioError, match="no readable copy"):
        frozen.check_frozen(scenario, tmp_path)


def test_the_same_scenario_written_otherwise_is_accepted(tmp_path):
    # As after an edgewise that writes other keys: the text differs, what it says does not.
    frozen.freeze("tiny", tmp_path)
    text = dump_scenario(load_scenario("tiny")).replace("retry_refused: false\n", "")
    digest = hashlib.sha256(text.encode()).hexdigest()
    (tmp_path / "frozen" / "tiny.yaml").write_text(text)
    (tmp_path / "frozen.json").write_text(json.dumps({"tiny": {"sha256": digest, "date": "2030-01-31"}}))
    assert frozen.check_frozen(load_scenario("tiny"), tmp_path) == digest


def test_unfrozen_and_unreadable(tmp_path):
    with pytest.raises(ScenarioError, match=r"'tiny': is not frozen.*edgewise dev freeze"):
        frozen.check_frozen(load_scenario("tiny"), tmp_path)
    (tmp_path / "frozen.json").write_text("{")
    with pytest.raises(RunError, match="restore it from git"):
        frozen.read_frozen(tmp_path)


# --- looks


def append(folder, k=0):
    claim = Claim.of(
        f"claim-{k}", "s", "edgewise", "published", "p", Finding(1.0, (0.9, 1.1), 5), at_least(0.5)
    )
    return frozen.append_look(
        folder, "demo", CODE, [claim] * 50, seeds=[k], quick=False, finished=True, scenarios={"tiny": "9a"}
    )


def test_a_look_holds_what_was_seen_and_nothing_is_rewritten(tmp_path):
    path = append(tmp_path / "results", 0)
    first = path.read_bytes()
    append(tmp_path / "results", 1)
    assert path.read_bytes().startswith(first)
    look, _ = frozen.read_looks(tmp_path / "results")
    assert list(look) == [
        "time", "paper", "commit", "dirty", "version", "seeds", "quick", "finished", "claims", "scenarios",
    ]  # fmt: skip
    assert look["time"].endswith("Z") and "T" in look["time"]
    assert (look["commit"], look["dirty"], look["seeds"]) == (CODE.commit, False, [0])
    assert look["claims"][0] == {"id": "claim-0", "estimate": 1.0, "ci": [0.9, 1.1], "status": "holds"}


def append_many(folder):
    for k in range(20):
        append(folder, k)


def test_processes_that_append_at_once_lose_no_line(tmp_path):
    spawn = multiprocessing.get_context("fork")
    processes = [spawn.Process(target=append_many, args=(tmp_path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(look["seeds"][0] for look in frozen.read_looks(tmp_path)) == sorted(list(range(20)) * 4)


def test_appending_waits_for_the_lock(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    path = append(tmp_path)
    with open(path, "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread = threading.Thread(target=append, args=(tmp_path, 1), daemon=True)
        thread.start()
        thread.join(timeout=0.5)
        assert thread.is_alive() and len(frozen.read_looks(tmp_path)) == 1
    thread.join(timeout=60)
    assert len(frozen.read_looks(tmp_path)) == 2


def test_a_broken_log_names_the_line(tmp_path):
    assert frozen.read_looks(tmp_path) == []
    append(tmp_path)
    (tmp_path / "looks.jsonl").open("a").write("{oops\n")
    with pytest.raises(RunError, match=r"looks\.jsonl:2: not a look"):
        frozen.read_looks(tmp_path)


def git(root, *arguments):
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments], cwd=root, check=True,
        capture_output=True,
    )  # fmt: skip


def test_commit_and_changes_come_from_git(tmp_path, monkeypatch):
    assert frozen.code(None).commit is None
    assert frozen.code(tmp_path).commit is None  # no repository
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    clean = frozen.code(tmp_path)
    assert len(clean.commit) == 40 and clean.dirty is False
    append(tmp_path / "docs" / "results")
    assert frozen.code(tmp_path).dirty is False  # the log itself does not count
    (tmp_path / "file").write_text("2")
    assert frozen.code(tmp_path).dirty is True
    monkeypatch.setenv("PATH", "")
    assert (frozen.code(tmp_path).commit, frozen.code(tmp_path).dirty) == (None, None)


# --- seeds of looks


def test_each_look_has_seeds_of_its_own_that_nobody_chose():
    known = run.registered()
    assert looks.test_range("ents", 1) == looks.test_range("kais", 1) == range(TEST.start, TEST.start + 1_000)
    drawn = [looks.test_range(name, look) for name in known for look in range(2, 6)]
    firsts = [seeds.start for seeds in drawn]
    assert len(set(firsts)) == len(drawn) == 4 * len(known)
    assert all(
        len(seeds) == 1_000 and TEST.start + 1_000 <= seeds[0] <= seeds[-1] < TEST.stop for seeds in drawn
    )
    assert all(max(what.seeds) <= 1_000 for what in known.values())


def test_the_page_says_where_the_seeds_of_the_next_look_begin():
    page = (RESULTS.parent / "honest-numbers.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"of ([\w-]+)\sat (1,\d{3},000)", page))
    assert said == {name: f"{what.test_seeds(False).start:,}" for name, what in run.registered().items()}


def test_a_quick_run_leaves_fresh_seeds_alone():
    for what in run.registered().values():
        assert what.test_seeds(quick=True)[0] == TEST.start < what.test_seeds(quick=False)[0]


def test_a_published_look_is_frozen_first_and_never_repeated(tmp_path, register):
    register(one_claim)
    what, publish = run.find("demo"), {"looks": tmp_path}
    with pytest.raises(
        ScenarioError, match="look 2 asks is not frozen; run `edgewise dev freeze demo --look`"
    ):
        run.carry_out("demo", tmp_path, tmp_path, **publish)
    run.carry_out("demo", tmp_path, tmp_path / "other", looks=tmp_path / "mine")  # nobody publishes that
    frozen.freeze_setting(looks.frozen_as(what), looks.predicates(what), tmp_path)
    assert run.carry_out("demo", tmp_path, tmp_path, **publish).seeds == tuple(what.test_seeds(quick=False))
    run.carry_out("demo", tmp_path, tmp_path, quick=True, **publish)
    with pytest.raises(RunError, match=r"were looked at on .*: raise `look` of the reproduction"):
        run.carry_out("demo", tmp_path, tmp_path, **publish)


def test_a_claim_that_changed_after_it_was_frozen_stops_the_look(tmp_path, register):
    register(one_claim)
    what = run.find("demo")
    frozen.freeze_setting(looks.frozen_as(what), looks.predicates(what), tmp_path)
    register(one_claim, ours=["one"])
    with pytest.raises(ScenarioError, match=r"claims\.one\.method was 'as published', now 'edgewise'"):
        run.carry_out("demo", tmp_path, tmp_path, looks=tmp_path)
    named = json.loads(looks.predicates(run.find("demo")))["source"]
    assert set(named) == {Path(__file__).name, "claims.py"}


# --- carrying out


@pytest.fixture
def register(monkeypatch):
    """Reproductions of one test only."""
    monkeypatch.setattr(run, "reproductions", {})

    def add(measure, name="demo", **kwargs):
        claims = {"one": "the first", "two": "the second"}
        run.reproduction(name, paper="a paper", claims=claims, seeds=(20, 3), **kwargs)(measure)

    return add


def one_claim(r):
    r.step("measuring")
    r.claim("one", measured([1.0, 1.1, 0.9]), at_least(0.5))


def test_report_and_look(tmp_path, register):
    said = []

    def measure(r):
        one_claim(r)
        r.claim("two", exact(3.0), at_most(1.0))
        assert r.scenario("tiny").name == "tiny"
        r.figure("figure", Figure())

    frozen.freeze("tiny", tmp_path / "results")
    register(measure)
    report = run.carry_out("demo", tmp_path / "out", tmp_path / "results", quick=True, step=said.append)
    replace(report, command="x").write(tmp_path / "out" / "claims.json")
    written = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert list(written) == ["paper", "claims", "seeds", "elapsed_s", "command", "scenarios"]
    assert written["seeds"] == list(TEST_SEEDS) and written["command"] == "x"
    assert [claim["status"] for claim in written["claims"]] == ["holds", "fails"]
    assert list(written["claims"][0]) == [
        "id", "statement", "method", "setting", "paper", "estimate", "ci", "n", "status", "detail",
    ]  # fmt: skip
    digest = frozen.sha256(load_scenario("tiny"))
    assert written["scenarios"] == {"tiny": digest}
    (look,) = frozen.read_looks(tmp_path / "results")
    assert look["seeds"] == list(TEST_SEEDS) and look["quick"] and look["finished"]
    assert look["scenarios"] == {"tiny": digest}
    assert [claim["status"] for claim in look["claims"]] == ["holds", "fails"]
    assert said == ["measuring"]
    assert (tmp_path / "out" / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_fresh_seeds_are_no_look(tmp_path, register):
    register(one_claim)
    report = run.carry_out("demo", tmp_path, tmp_path, seeds=range(2_000_000, 2_000_002))
    assert report.seeds == (2_000_000, 2_000_001)
    assert frozen.read_looks(tmp_path) == []
    run.carry_out("demo", tmp_path, tmp_path, seeds=[0, TEST.start])  # one test seed is enough
    assert len(frozen.read_looks(tmp_path)) == 1


def test_a_run_that_breaks_is_noted_all_the_same(tmp_path, register):
    def measure(r):
        one_claim(r)
        raise KeyboardInterrupt

    register(measure)
    with pytest.raises(KeyboardInterrupt):
        run.carry_out("demo", tmp_path, tmp_path)
    (look,) = frozen.read_looks(tmp_path)
    assert not look["finished"] and [claim["id"] for claim in look["claims"]] == ["one"]


def test_no_declared_claim_goes_missing(tmp_path, register):
    register(one_claim)
    quick = run.carry_out("demo", tmp_path, tmp_path, quick=True)
    assert [claim.status for claim in quick.claims] == ["holds", "not_in_quick"]
    full = run.carry_out("demo", tmp_path, tmp_path, quick=False)
    assert [claim.status for claim in full.claims] == ["holds", "inconclusive"]
    assert full.claims[1].estimate is None and "not measured" in full.claims[1].detail
    assert len(full.seeds) == 20


def test_claims_must_be_declared_and_made_once(tmp_path, register):
    register(lambda r: r.claim("three", exact(1.0), at_least(0.5)), "undeclared")
    with pytest.raises(EdgewiseError, match="'three': undeclared did not declare it; declared: one, two"):
        run.carry_out("undeclared", tmp_path, tmp_path)
    register(lambda r: (one_claim(r), one_claim(r)), "twice")
    with pytest.raises(EdgewiseError, match="'one': twice made it twice"):
        run.carry_out("twice", tmp_path, tmp_path)
    with pytest.raises(EdgewiseError, match=r"did you mean 'twice'.*known: twice, undeclared"):
        run.find("twce")


def test_the_rival_is_chosen_on_validation_seeds_only(tmp_path, register):
    def measure(r):
        values = {"a": [0.1, 0.2], "b": [0.3, 0.3]}
        assert r.rival(values, VALIDATION[:2]) == "b"
        r.rival(values, r.seeds)

    register(measure)
    with pytest.raises(EdgewiseError, match="is a test seed, and choices are made on validation seeds"):
        run.carry_out("demo", tmp_path, tmp_path)


def test_a_claim_says_whose_method_it_is_about_and_in_which_setting(tmp_path, register):
    register(one_claim, ours=["two"], as_live=["one"])
    report = run.carry_out("demo", tmp_path, tmp_path, seeds=range(3), quick=True)
    claims = report.as_dict()["claims"]
    assert [claim["method"] for claim in claims] == ["as published", "edgewise"]
    assert [claim["setting"] for claim in claims] == ["as live", "published"]
    with pytest.raises(EdgewiseError, match="as_live names 'three', which is no declared claim"):
        register(one_claim, name="other", as_live=["three"])
    with pytest.raises(EdgewiseError, match="'one' is declared and withdrawn; drop one"):
        register(one_claim, name="other", withdrawn={"one": "it could not fail"})
    with pytest.raises(EdgewiseError, match="ours names 'three', which is no declared claim"):
        register(one_claim, name="other", ours=["three"])


RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/claims.json")), ids=lambda path: path.parent.name)
def test_committed_claims_still_stand_and_say_whose_method_they_are_about(path):
    what = run.find(path.parent.name)
    for claim in json.loads(path.read_text())["claims"]:
        id = claim["id"]
        assert id in what.claims and id not in what.withdrawn, id
        assert claim["method"] == what.method(id) and claim["setting"] == what.setting_of(id), id
        assert list(claim) == FIELDS


FIELDS = list(Claim.without_figures("", "", "edgewise", "published", "", "holds", "").as_dict())


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/withdrawn.json")), ids=lambda path: path.parent.name)
def test_what_was_published_and_no_longer_stands_is_kept_with_its_reason(path):
    what = run.find(path.parent.name)
    now = json.loads(path.with_name("claims.json").read_text())["claims"]
    stands = {(claim["id"], claim["statement"]) for claim in now}
    for claim in json.loads(path.read_text())["claims"]:
        # A claim that asks for more may stand under the same name.
        assert list(claim) == [*FIELDS, "why"] and (claim["id"], claim["statement"]) not in stands
        assert claim["why"] == what.withdrawn.get(claim["id"], claim["why"]) and len(claim["why"]) > 30
        assert claim["id"] in what.withdrawn or claim["id"] in what.claims


def test_what_is_withdrawn_for_a_test_names_one_that_is_there():
    named = [
        (why.partition("::")[0].split()[-1], why.partition("::")[2])
        for what in run.registered().values()
        for why in what.withdrawn.values()
        if "::" in why
    ]
    assert len(named) == 6
    for path, test in named:
        assert f"def {test}(" in (RESULTS.parents[1] / path).read_text(encoding="utf-8"), test


def test_no_claim_is_met_by_being_equal():
    """A ratio of 1 or a difference of 0 is no finding: what is ahead is so by a minimum effect."""
    for path in (Path(run.__file__).parent / "papers").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("at_least", "better_by")):
                continue
            (least,) = call.args
            line = path.read_text(encoding="utf-8").splitlines()[call.lineno - 1]
            if isinstance(least, ast.Constant) and '"tp", "lr"' not in line:  # that one is a gain of 100 %
                effect = min(abs(least.value), abs(least.value - 1.0))
                assert effect >= 0.005, f"{path.name}: {line}"


MEASURES_TIME = {
    "carry_out",
    "timed",
    "_time_ticks",
    "n4",
}  # to report it; quick runs skip such claims


def test_no_clock_decides_how_much_a_reproduction_measures():
    asked = set()
    for path in Path(run.__file__).parent.rglob("*.py"):
        if "calibration" in path.parts or path.name == "published.py":
            continue  # a search that goes on: its rows are the same whenever it stops
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                nodes = (n.value for n in ast.walk(function) if isinstance(n, ast.Attribute))
                asked |= {function.name for n in nodes if isinstance(n, ast.Name) and n.id == "time"}
    assert asked == MEASURES_TIME
    assert not [name for name in dir(run.Run) if name.endswith("_s")]


def test_a_quick_run_measures_as_much_on_a_machine_a_thousand_times_as_busy(tmp_path, monkeypatch):
    clocks = {name: getattr(time, name) for name in ("perf_counter", "monotonic", "time")}
    for name, clock in clocks.items():
        monkeypatch.setattr(time, name, lambda clock=clock: 1000.0 * clock())
    monkeypatch.setattr(osdec, "AHEAD", 2)  # short programs
    quick = run.Run(run.find("osdec"), True, tuple(VALIDATION[:4]), tmp_path, tmp_path)
    assert [outcome.reward.size for outcome in osdec.programs(quick)] == [4, 4]


def test_a_changed_scenario_stops_the_run(tmp_path, register):
    frozen.freeze("tiny", tmp_path)
    changed(tmp_path, "rate: 90.0", "rate: 80.0")
    register(lambda r: r.scenario(tmp_path / "mine.yaml"))
    with pytest.raises(ScenarioError, match="differs from what was frozen"):
        run.carry_out("demo", tmp_path, tmp_path)


def test_a_frozen_setting_may_not_change(tmp_path):
    with pytest.raises(
        ScenarioError, match="setting 'ents': is not frozen; run `edgewise dev freeze ents` once, "
    ):
        frozen.check_setting("ents", "one", tmp_path)
    digest = frozen.freeze_setting("ents", "one", tmp_path)
    assert frozen.check_setting("ents", "one", tmp_path) == digest == hashlib.sha256(b"one").hexdigest()
    with pytest.raises(ScenarioError, match="differs from what was frozen"):
        frozen.check_setting("ents", "two", tmp_path)
    text = frozen.setting_text({"nodes": {"speed": 1.0}})
    frozen.freeze_setting("osdec", text, tmp_path)
    with pytest.raises(ScenarioError, match=r"nodes\.speed was 1\.0, now 2\.0"):
        frozen.check_setting("osdec", text.replace("1.0", "2.0"), tmp_path)
    with pytest.raises(ScenarioError, match="is frozen since"):
        frozen.freeze_setting("ents", "two", tmp_path)


def test_the_setting_of_ents_is_the_frozen_one():
    from edgewise_studies.papers.ents import setting

    if frozen.checkout() is None:
        pytest.skip("results are kept in a checkout only")
    frozen.check_setting("ents", setting(), frozen.results_folder())
