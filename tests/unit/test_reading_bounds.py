"""Files that are short and say without end, and numbers and depths that nobody means: refused at once."""

import pytest

from edgewise import policies
from edgewise.config import MOST_VALUES, load_catalog, load_scenario, parse_setting
from edgewise.errors import PolicyError, RunError, ScenarioError
from edgewise.profiling import entries
from edgewise.report import records
from edgewise.workloads.foreign import TrafficFile

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
MERGED = "a0: &a0 {k0: 1, k1: 2}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}], k: 1}}\n" for i in range(1, 12)
)
TOO_MUCH = {
    BOMB: rf"with its aliases written out, it has more than {MOST_VALUES:,} values",
    MERGED: "with its aliases written out, it has more than",
    "&a [*a]": "an alias stands within what it stands for; write it out",
    "&a {<<: *a}": "an alias stands within what it stands for; write it out",
    "[" * 5_000: "values lie in each other more than 100 deep",
    "a: 0x" + "f" * 5_000: "has 5,002 characters; a number has 100 at most",
    "a: " + "9" * 5_000: "has 5,000 characters; a number has 100 at most",
    "a: 1" + ":59" * 1_000: "has 3,001 characters; a number has 100 at most",
    "a: 2026-13-01": "'2026-13-01': month must be in 1..12; write a text in quotes",
    "a: !!bool x": "'x'",
}


@pytest.mark.parametrize("text", TOO_MUCH, ids=lambda text: text[:12])
def test_a_file_that_says_too_much_is_refused(text, tmp_path):
    file = tmp_path / "bomb.yaml"
    file.write_text(text)
    for read in (load_scenario, load_catalog, lambda file: entries.known_model(file, "eye")):
        with pytest.raises(ScenarioError, match=rf"bomb\.yaml:\d+:\d+: not valid YAML: .*{TOO_MUCH[text]}"):
            read(file)
    with pytest.raises(ScenarioError, match=TOO_MUCH[text]):
        parse_setting(f"name={text}")


def test_aliases_that_stand_for_a_few_values_are_read(tmp_path):
    assert parse_setting("a=[&x {k: [1, 2]}, *x, {<<: *x}]")[1] == [{"k": [1, 2]}] * 3
    many = "[&q [1, 2], " + ", ".join(["*q"] * 20_000) + "]"
    assert len(parse_setting(f"a={many}")[1]) == 20_001


def test_of_a_hundred_thousand_problems_the_first_are_said(tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text("name: wrong\ntimeline: [&q {x: 1}, " + ", ".join(["*q"] * 20_000) + "]\n")
    with pytest.raises(ScenarioError, match=r"[0-9]+,[0-9]{3} problems") as caught:
        load_scenario(file)
    assert len(str(caught.value)) < 10_000 and str(caught.value).endswith(" more")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"name": ' * 100_000, "9" * 10_000])
def test_json_that_nobody_means_is_refused(text, tmp_path):
    (tmp_path / "deep.json").write_text(text)
    with pytest.raises(PolicyError, match="is no card"):
        policies.load("dispatch", str(tmp_path / "deep.json"))
    with pytest.raises(ScenarioError, match=r"is no answer of Prometheus|holds no traffic"):
        list(TrafficFile(tmp_path / "deep.json").read())
    for name in records._FILES:
        (tmp_path / name).write_text(text)
    with pytest.raises(RunError, match="cannot read run folder"):
        records.read_run(tmp_path)
