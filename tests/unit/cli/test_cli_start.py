"""How commands begin: what they import, what every one of them understands, and how mistakes are told."""

import subprocess
import sys

import pytest
from typer.main import get_command

import edgewise as ew
from edgewise.cli import app
from edgewise.cli.table import DEV, VERBS
from in_process import edgewise

HEAVY = ("numpy", "numba", "scipy", "pyarrow", "matplotlib", "onnxruntime", "yaml", "joblib", "pydantic",
         "markdown_it", "pygments")  # fmt: skip
SCRIPT = """
import sys
from edgewise import cli
sys.argv = ["edgewise", *{words}]
try:
    cli.main()
finally:
    print("imported:", *sorted(set({heavy}) & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--version"], ["status"], ["nodes"], ["jobs"]])
def test_what_takes_long_to_import_is_left_until_it_is_needed(words, tmp_path):
    """0.4 s of CPU for help, 0.5 s for questions to a live system: numpy or pydantic take a third of that."""
    script = SCRIPT.format(words=words, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == (0 if words[0].startswith("-") else 2), done.stderr
    assert done.stderr.splitlines()[-1] == "imported:"


def test_help_leaves_nothing_of_its_stand_ins():
    """The reader of Markdown is left out while help is written, and no longer."""
    script = """
import sys
from edgewise import cli
sys.argv = ["edgewise", "--help"]
try:
    cli.main()
except SystemExit:
    from rich.markdown import Markdown
    from rich.traceback import Traceback
    from typer import rich_utils
    assert rich_utils.Markdown is Markdown and rich_utils.Traceback is Traceback
    Markdown("x"), Traceback
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "Simulate" in done.stdout


def below(command, name="edgewise"):
    yield name, command
    for each in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from below(command.get_command(None, each), f"{name} {each}")


def test_the_table_says_of_each_command_what_it_says_of_itself():
    found = {name.removeprefix("edgewise "): command for name, command in below(get_command(app))}
    for name, verb in [*VERBS.items(), *((f"dev {name}", verb) for name, verb in DEV.items())]:
        first = " ".join((found[name].help or "").split("\n\n")[0].split())
        assert verb.about == first, name


def test_every_command_may_be_quiet_and_has_short_help():
    for name, command in below(get_command(app)):
        if not hasattr(command, "list_commands"):
            assert [each.opts for each in command.params if "--quiet" in each.opts] == [["--quiet", "-q"]], (
                name
            )


@pytest.mark.parametrize("words", [["-h"], ["simulate", "-h"], ["policy", "-h"], ["policy", "set", "-h"]])
def test_h_is_help_everywhere(words, tmp_path):
    short, long = edgewise(*words, cwd=tmp_path), edgewise(*words[:-1], "--help", cwd=tmp_path)
    assert short.returncode == 0 and "Usage: " in short.stdout and short.stdout == long.stdout


def test_the_version_is_printed(tmp_path):
    assert edgewise("--version", cwd=tmp_path).stdout == f"edgewise {ew.__version__}\n"


def test_commands_for_developers_stand_under_one_and_are_found_where_they_were(tmp_path):
    shown = edgewise("--help", cwd=tmp_path).stdout
    assert "│ dev " in shown and not any(f"│ {name} " in shown for name in DEV)
    for name in DEV:
        assert f"edgewise dev {name}" in edgewise("dev", name, "--help", cwd=tmp_path).stdout
        assert edgewise(name, "--help", cwd=tmp_path).returncode == 0, (
            name
        )  # images and old notes name them so


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nope", "no command 'nope'; see edgewise --help"),
        ("simulat tiny", "no command 'simulat'; did you mean 'simulate'? See edgewise --help"),
        ("simulate", "SCENARIO: is missing; see edgewise simulate --help"),
        ("simulate tiny --nope", "--nope: is no option of this command; see edgewise simulate --help"),
        (
            "simulate tiny --policie x",
            "--policie: is no option of this command; did you mean --policy? See edgewise simulate --help",
        ),
        ("simulate tiny --jobs x", "--jobs: must be a whole number; see edgewise simulate --help"),
        (
            "simulate tiny --jobs 0",
            "--jobs: must be greater than or equal to 1; see edgewise simulate --help",
        ),
        (
            "load x --seconds soon",
            "--seconds: 'soon' is no duration; write it as 90, 90s, 1.5min, 2h or 1h30m; "
            "see edgewise load --help",
        ),
        ("record here --last 0s", "--last: '0s' is 0 s; use at least 1 s; see edgewise record --help"),
        (
            "demo --seconds 2h",
            "--seconds: '2h' is 7200 s; use at least 5 s and at most 600 s; see edgewise demo --help",
        ),
        ("schema x", "x: is one argument too many; see edgewise schema --help"),
        ("dev kernels", "--into: is missing; see edgewise dev kernels --help"),
        ("job output x", "NUMBER: must be a whole number; see edgewise job output --help"),
    ],
)
def test_a_mistake_of_the_parser_reads_as_any_other(words, said, tmp_path):
    done = edgewise(*words.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {said}\n")


def test_quiet_leaves_the_answer_and_errors_alone(tmp_path):
    clients = "streams.arrivals.clients_per_min"
    words = ("sweep", "tiny", "--vary", f"{clients}=20,-1", "--seeds", "0:2", "--policy", "closest")
    loud, quiet = (edgewise(*words, *more, cwd=tmp_path) for more in ((), ("--quiet",)))
    assert "note:" in loud.stderr and quiet.stderr == "" and quiet.stdout == loud.stdout != ""
    assert "no such file" in edgewise("simulate", "nope", "--quiet", cwd=tmp_path).stderr
    assert "note:" in edgewise(*words, cwd=tmp_path).stderr  # it holds for one command


def test_words_paths_and_flags_are_read_as_typer_reads_them(tmp_path):
    """What needs no check is not checked by pydantic; what does is refused as before."""
    done = edgewise("scenarios", "--json", cwd=tmp_path)
    assert done.returncode == 0 and '"scenario": "tiny"' in done.stdout
    for words, said in (
        (["simulate", "tiny", "--jobs", "x"], "--jobs"),
        (["dev", "kernels", "--into", "here", "--cpu", "other"], "--cpu"),
        (["report"], "RUN"),
    ):
        failed = edgewise(*words, cwd=tmp_path)
        assert failed.returncode == 2 and said in failed.stderr, words
