"""The command line as a person meets it: exit codes, no tracebacks."""

import json
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from edgewise import policies
from edgewise.cli import PANELS, app
from in_process import edgewise

ROOT = Path(__file__).parents[3]


def process(*arguments, cwd):
    """The command in a process of its own; `edgewise` runs it in this one."""
    return subprocess.run(
        [sys.executable, "-m", "edgewise", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_simulate_writes_a_run_folder(tmp_path):
    done = process("simulate", "tiny", "--policy", "closest", "--seeds", "0:2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "tiny-closest"
    names = {path.name for path in folder.iterdir()}
    assert names >= {"scenario.yaml", "manifest.json", "items.parquet", "windows.parquet", "summary.json",
                     "figures", "report.html"}  # fmt: skip
    assert "closest" in done.stdout


def test_compare_then_report(tmp_path):
    done = edgewise("compare", "tiny", "--seeds", "0:3", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "here" / "report.html").unlink()
    assert edgewise("report", "here", cwd=tmp_path).returncode == 0
    assert (tmp_path / "here" / "report.html").exists()


def test_schema_is_json_and_lists_print(tmp_path):
    schema = json.loads(edgewise("schema", cwd=tmp_path).stdout)
    assert "clusters" in schema["properties"]
    assert "three-tier" in edgewise("scenarios", cwd=tmp_path).stdout
    assert "least-impedance" in edgewise("policies", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "three-teir"], "three-tier"),
        (["simulate", "tiny", "--policy", "closet"], "closest"),
        (["simulate", "tiny", "--seeds", "5:1"], "A:B"),
        (["simulate", "tiny", "--seeds", "x"], "A:B"),
        (["simulate", "tiny", "--seeds", "1000000:1000002"], "edgewise reproduce"),  # they are for it only
        (["compare", "tiny", "--seeds", "1000000:1000002"], "edgewise reproduce"),
        (["report", "nowhere"], "nowhere"),
        (["report", "[bold]nowhere"], "[bold]nowhere"),
        (["compare", "tiny", "--policies", "closest"], "at least two"),
        (["simulate", "tiny", "--policy", "nope"], "no dispatch policy 'nope'. Have: "),
        (["simulate", "kais-demo", "--policy", "defer=fifo"], "it has services, which edgewise simulate"),
        (
            ["simulate", "tiny", "--policy", "orchestrate=none"],
            "it has streams, which edgewise simulate runs",
        ),
        (
            ["simulate", "tiny", "--policy", "closest", "--policy", "dispatch=closest"],
            "dispatch is given twice",
        ),
        (["simulate", "tiny", "--policy", "split=nona", "--policy", "defer=fifo"], "of different work"),
        (["replay", "nowhere"], "nowhere: no recording"),
        (["up", "tiny", "--models", "nowhere"], "--models nowhere: no such folder"),
        (
            ["simulate", "split-inception", "--set", "graphs.0.rate_qps=1e6"],
            "servers and there are 10",
        ),
    ],
)
def test_bad_input_is_one_message_and_exit_2(tmp_path, arguments, message):
    done = edgewise(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "tiny"],
        ["compare", "tiny"],
        ["simulate", "kais-demo"],
        ["compare", "deferrable"],
        ["train", "chooser"],
        ["train", "aset"],
        ["profile", "tiny-yolov2-416"],
    ],
)
def test_a_place_that_cannot_be_written_is_said_before_the_work(tmp_path, arguments):
    (tmp_path / "taken").write_text("a file")
    done = edgewise(*arguments, "--out", "taken/x" if arguments[0] == "profile" else "taken", cwd=tmp_path)
    assert done.returncode == 2
    assert "taken" in done.stderr and "check the path" in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout


def test_a_process_ends_as_main_does(tmp_path):
    arguments = ["simulate", "three-teir"]
    done, same = (run(*arguments, cwd=tmp_path) for run in (process, edgewise))
    assert done.returncode == same.returncode == 2
    assert done.stdout == same.stdout == "" and done.stderr.split() == same.stderr.split() != []


def test_a_damaged_run_folder_is_named(tmp_path):
    assert edgewise("simulate", "tiny", "--seeds", "0", "--out", "mine", cwd=tmp_path).returncode == 0
    for file, content, message in [
        ("manifest.json", "{}", "manifest.json lacks work, seeds, policies"),
        ("items.parquet", "PAR1", "cannot read run folder mine"),
    ]:
        (tmp_path / "mine" / file).write_text(content)
        done = edgewise("report", "mine", cwd=tmp_path)
        assert done.returncode == 2 and message in done.stderr
        assert "Traceback" not in done.stderr


def test_a_port_of_another_program_is_said_before_a_system_starts(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = edgewise("up", "tiny", "--port", str(port), cwd=tmp_path)
    assert done.returncode == 2
    assert f"port {port}, for gateway-0" in done.stderr and "--port" in done.stderr


def test_unknown_key_names_the_nearest(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine\nduraton_s: 5\n")
    done = edgewise("simulate", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "duraton_s" in done.stderr and "duration_s" in done.stderr


def commands(group, name="edgewise"):
    """Names of all commands and groups below a group, those that other packages offer included."""
    for each in group.list_commands(None) if hasattr(group, "list_commands") else ():
        command = group.get_command(None, each)
        yield f"{name} {each}", command
        yield from commands(command, f"{name} {each}")


def test_every_help_has_an_example():
    found = dict(commands(get_command(app)))
    assert len(found) > 40
    assert [name for name, command in found.items() if name not in (command.epilog or "")] == []


def test_the_reference_has_every_command():
    text = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
    names = [name.removeprefix("edgewise ") for name, _ in commands(get_command(app))]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_reference_has_every_flag_and_no_other():
    text = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    usages = blocks.replace("\n ", " ").splitlines()  # a usage goes on in the lines that are indented
    known = {"--state", "--quiet", "--json", "--help", "--version"}  # said once, for all commands
    missing = []
    for name, command in commands(get_command(app)):
        words = re.compile(rf"\b{name.removeprefix('edgewise ')}\b")
        shown = {flag for usage in usages if words.search(usage) for flag in re.findall(r"--[a-z-]+", usage)}
        for option in command.params:
            names = {flag for flag in (*option.opts, *option.secondary_opts) if flag.startswith("--")}
            if names and not names & {"--state", "--quiet", "--json"} and not names & shown:
                missing.append((name, option.name))
            known |= names
    assert missing == []
    assert set(re.findall(r"--[a-z-]+", blocks)) - known == set()


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Install another package, which offers what its entry points say."""

    def install(entries, code):
        (tmp_path / "mine-1.0.dist-info").mkdir()
        (tmp_path / "mine-1.0.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
        (tmp_path / "mine-1.0.dist-info" / "entry_points.txt").write_text(entries)
        (tmp_path / "mine.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)

    yield install
    sys.modules.pop("mine", None)


GREETER = """
import typer
app = typer.Typer()

@app.command()
def greet(name: str):
    print("hello", name)

@app.command()
def parrot():
    print("learned")
"""


def test_another_package_adds_commands(offer, tmp_path):
    offer("[edgewise.commands]\ngreet = mine:app\n[edgewise.commands.train]\nparrot = mine:app\n", GREETER)
    assert "greet" in edgewise("--help", cwd=tmp_path).stdout
    assert edgewise("greet", "you", cwd=tmp_path).stdout == "hello you\n"
    assert edgewise("train", "parrot", cwd=tmp_path).stdout == "learned\n"
    missing = edgewise("greet", cwd=tmp_path)
    assert missing.returncode == 2 and "edgewise greet --help" in missing.stderr


def test_a_broken_command_of_another_package_is_named(offer, tmp_path):
    offer("[edgewise.commands]\ngreet = mine:app\n", "import nothing_like_it\n")
    found = edgewise("greet", cwd=tmp_path)
    assert found.returncode == 2 and "mine:app" in found.stderr and "nothing_like_it" in found.stderr
    assert edgewise("scenarios", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("simulate three-t", ["three-tier"]),
        ("up mi", ["mine.yaml"]),
        ("simulate tiny --policy defer=ho", ["defer=horizon"]),
        ("compare tiny --policies closest,far", ["closest,farthest"]),
        ("policy set requests=gre", ["requests=greedy"]),
    ],
)
def test_the_shell_completes_scenarios_and_policies(line, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").touch()
    asked = {"_EDGEWISE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"edgewise {line}"}
    done = CliRunner().invoke(app, [], prog_name="edgewise", env=asked)
    assert re.findall(r'"(.+?)"', done.stdout) == found, done.output


def test_help_shows_every_command_in_a_group(tmp_path):
    named = [name for verbs in PANELS.values() for name in verbs]
    assert sorted(named) == sorted(get_command(app).list_commands(None))
    text = edgewise("--help", cwd=tmp_path).stdout
    for panel, names in PANELS.items():
        shown = text.split(f"─ {panel} ─")[1].split("╰")[0]
        assert all(re.search(rf"│ {name} ", shown) for name in names), panel


def shown_commands():
    """Every line of a shell block in README and documentation that calls edgewise, whole."""
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if file.name == "cli.md":
            continue  # usages, which the tests above compare with the flags there are
        for block in re.findall(r"```(?:sh|bash|shell|console)?\n(.*?)```", file.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if found := re.match(r"\s*(?:\$ )?(?:sudo )?edgewise (.*)", line):
                    yield pytest.param(found[1], id=f"{file.relative_to(ROOT)}: {found[1][:60]}")


@pytest.mark.parametrize("line", list(shown_commands()))
def test_commands_that_the_documentation_shows_are_understood(line):
    """Arguments and flags are parsed as when the command is run."""
    words = shlex.split(re.split(r" [&|>] ?|;|&$", line)[0], comments=True)
    command, context = get_command(app), None
    while hasattr(command, "commands"):
        context = command.context_class(command, parent=context, info_name="edgewise")
        command = command.get_command(context, words.pop(0))
        assert command is not None, line
    command.make_context("edgewise", words, parent=context)


def test_policies_are_listed_by_decision(tmp_path):
    rows = json.loads(edgewise("policies", "--json", cwd=tmp_path).stdout)
    assert {row["decision"] for row in rows} == set(policies.DECISIONS)
    assert all(row["what"].endswith(".") for row in rows), [
        row for row in rows if not row["what"].endswith(".")
    ]
    kinds = {(row["decision"], row["of"]) for row in rows}
    assert ("dispatch", "streams") in kinds and ("requests", "services") in kinds
    named = [row["policy"] for row in rows if row["decision"] == "defer"]
    assert named == policies.names("defer")
    shown = edgewise("policies", "defer", cwd=tmp_path).stdout
    assert "horizon" in shown and "least-impedance" not in shown


def test_the_lists_name_scenarios_of_both_kinds(tmp_path):
    shown = edgewise("scenarios", cwd=tmp_path).stdout
    assert "three-tier" in shown and "kais-demo" in shown
