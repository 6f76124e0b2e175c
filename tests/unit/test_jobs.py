"""The job description a user writes, and the profiler that completes it."""

import json

import pytest

from edgewise.core.placement import arrays_of
from edgewise.errors import ScenarioError
from edgewise.model.jobs import Pipeline, parse_description, size_bytes
from edgewise.model.work import Task, TaskGraph
from edgewise.workloads.job_files import load_description, task_functions
from edgewise.workloads.job_profiler import profile_job, profiled_job
from edgewise.workloads.streaming import edge_network

HEAD = {"job": "test", "image": "me/app", "total_memory_request": "8GB", "source": "pi0", "input_size": "10"}


def tasks(*downstream):
    return [{"id": f"task{i}", "downstream": d, "memory_resource": "2GB"} for i, d in enumerate(downstream)]


DIAMOND = [HEAD, *tasks("['task1','task2']", "['task3']", ["task3"], "")]


def test_the_description_of_the_paper_is_read():
    job = parse_description(DIAMOND)
    assert (job.job, job.source, job.memory_bytes, job.input_bytes) == ("test", "pi0", 8e9, 10e6)
    assert [(name, down) for name, down, _ in job.tasks] == [
        ("task0", ("task1", "task2")),
        ("task1", ("task3",)),
        ("task2", ("task3",)),
        ("task3", ()),
    ]


def test_profiled_description_is_a_job():
    names = [f"task{i}" for i in range(4)]
    job = parse_description(DIAMOND).profiled(
        dict.fromkeys(names, 1e9), dict.fromkeys(names, 5.0), frames=3.0
    )
    arrays = arrays_of(job, 0, edge_network(0, 10))
    assert arrays.tail.tolist() == [-1, 0, 0, 1, 2] and arrays.head.tolist() == [0, 1, 2, 3, 3]
    assert arrays.volume_bits.tolist() == [8e7, 40.0, 40.0, 40.0, 40.0]
    assert job.memory_bytes == 8e9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d[4].update(downstream="['task1']"),
            r"has a cycle through task1, task3; remove one of its edges",
        ),
        (
            lambda d: d[2].update(downstream="['tsak3']"),
            r"\[2\]\.downstream: 'tsak3' is not a task; did you mean 'task",
        ),
        (
            lambda d: d[0].update(total_memory_request="4GB"),
            r"'4GB' is less than the 8e\+09 bytes of all tasks; raise",
        ),
        (lambda d: d[0].pop("source"), r"\[0\]\.source: is missing; add it"),
        (lambda d: d[0].update(sorce=""), r"\[0\]\.sorce: unknown key; did you mean 'source'\?"),
        (
            lambda d: d[1].update(memory_resource="much"),
            r"\[1\]\.memory_resource: 'much' is not a size; write for",
        ),
        (lambda d: d[1].update(downstream=7), r"\[1\]\.downstream: 7 is not a list of task ids"),
        (lambda d: d[2].update(id="task0"), r"\[2\]\.id: 'task0' occurs twice"),
        (lambda d: d[1].update(downstream=["task1", "task1"]), r"'task1' is listed twice"),
        (lambda d: d.clear(), "needs a list: first the job"),
        (lambda d: d.append("task4"), r"\[5\]: 'task4' is not a mapping; its keys are id, downstream"),
    ],
)
def test_mistakes_are_named_with_their_place_and_fix(change, message):
    data = json.loads(json.dumps(DIAMOND))
    change(data)
    with pytest.raises(ScenarioError, match=message):
        parse_description(data)


def test_source_and_profile_are_asked_for_when_they_are_needed():
    data = json.loads(json.dumps(DIAMOND))
    data[0]["source"] = ""
    job = parse_description(data)
    names = [f"task{i}" for i in range(4)]
    full = dict.fromkeys(names, 1.0)
    with pytest.raises(ScenarioError, match="source is empty; name the node"):
        job.profiled(full, full, frames=1.0)
    assert job.profiled(full, full, "pi1", frames=1.0).source == "pi1"
    with pytest.raises(ScenarioError, match="work_ops of 'task3' is missing; profile the task"):
        job.profiled({name: 1.0 for name in names[:3]}, full, "pi1", frames=1.0)


def test_sizes():
    assert [size_bytes(text, "x") for text in ("2GB", "512 MiB", "1.5kB", "7", 9)] == [
        2e9,
        2**29,
        1500.0,
        7.0,
        9.0,
    ]
    assert size_bytes("10", "x", "MB") == 1e7


def test_a_job_has_one_length():
    graph = TaskGraph("g", (Task("a", 1.0),), ())
    with pytest.raises(ScenarioError, match="either frames or duration_s"):
        Pipeline("g", graph, "pi0", 1.0)
    with pytest.raises(ScenarioError, match="its length is 0"):
        Pipeline("g", graph, "pi0", 1.0, frames=0)


def test_files(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(DIAMOND))
    lines = []
    for entry in DIAMOND:
        lines += ["[[job]]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
    (tmp_path / "job.toml").write_text("\n".join(lines))
    assert load_description(tmp_path / "job.json") == load_description(tmp_path / "job.toml")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "job.txt").write_text("")
    for name, message in (
        ("bad.json", "is not valid JSON"),
        ("job.txt", "ending '.txt'"),
        ("no.json", "cannot be read"),
    ):
        with pytest.raises(ScenarioError, match=message):
            load_description(tmp_path / name)


CODE = """
def load(input):
    return True, input + b"12345678"

def square(input):
    return True, sum(i * i for i in range(len(input) * 20000))

def count(input):
    return True, len(input)

def both(input):
    a, b = input
    return True, (a, b)

job = [load, square, count, both]
"""


def test_the_profiler_runs_each_task_on_each_kind(tmp_path):
    code = tmp_path / "app.py"
    code.write_text(CODE)
    description = parse_description(DIAMOND)
    profiles = profile_job(description, code, b"frame678", {"one": 1.0, "half": 0.5}, repeats=3)
    one = {p.task: p for p in profiles["one"]}
    assert list(one) == ["task0", "task1", "task2", "task3"]
    assert one["task0"].output_bytes == 16
    assert one["task1"].time_s > 20 * one["task2"].time_s  # it does some 10^5 times the work
    job = profiled_job(description, profiles["one"], 1e9, duration_s=5.0)
    assert job.graph.tasks[1].work_ops == one["task1"].time_s * 1e9
    assert [edge.size_bytes for edge in job.graph.edges][:2] == [16.0, 16.0]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(input):\n    return True, 1\n", "exports no job; end it with: job = \\[f\\]"),
        (
            "def f(input):\n    return True, 1\njob = [g]\n",
            "names 'g', which is no function; did you mean 'f'|use one",
        ),
        ("def f():\n    return True, 1\njob = [f]\n", "f must take one argument"),
        ("def f(\n", "line 1 is not Python"),
        ("job = 3\n", "job is not a list of functions"),
        ("def f(input):\n    return True, 1\njob = [f]\n", "exports 1 functions for 4 tasks"),
        (CODE.replace("len(input)\n", "1 / 0\n"), "failed on 'one': ZeroDivisionError: division by zero"),
        (
            CODE.replace("return True, len(input)", "return len(input)"),
            "returned .*; a task returns True, output",
        ),
    ],
)
def test_mistakes_in_the_code_are_told(tmp_path, code, message):
    (tmp_path / "app.py").write_text(code)
    with pytest.raises(ScenarioError, match=message):
        profile_job(parse_description(DIAMOND), tmp_path / "app.py", b"x", {"one": 1.0}, repeats=1)


def test_functions_are_found_without_running_the_file(tmp_path):
    (tmp_path / "app.py").write_text("raise SystemExit\n" + CODE)
    assert task_functions(tmp_path / "app.py") == ("load", "square", "count", "both")
