"""`edgewise init`: a scenario to begin with, explained in comments, from options or from answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import yaml
from rich.markup import escape

from edgewise.cli.commands import verbs
from edgewise.cli.output import check_file, out, refuse_given
from edgewise.errors import RunError, extra
from edgewise.model.parsing import parse_scenario

app = verbs()


class Answers(NamedTuple):
    """What a site has, as people say it; each is an option, and a question on a terminal."""

    boxes: int = 4
    cores: int = 8
    cameras: int = 20
    rate: float = 5.0
    deadline: str = "200ms"
    cloud: bool = True
    uplink: str = "50Mbps"


QUESTIONS = {
    "boxes": "How many boxes (small servers) stand at the site?",
    "cores": "How many processor cores has each?",
    "cameras": "How many cameras are there?",
    "rate": "How many pictures does each send in a second?",
    "deadline": "How soon must the answer be there, for example 200ms?",
    "cloud": "Is there a cloud, too, behind a link?",
    "uplink": "How fast is the link to the cloud, for example 50Mbps?",
}
SAID = Answers()


@app.command(epilog="Example: edgewise init --boxes 4 --cameras 20 --cloud --out site.yaml")
def init(
    context: typer.Context,
    boxes: Annotated[int, typer.Option(help="Small servers at the site.", min=1)] = SAID.boxes,
    cores: Annotated[int, typer.Option(help="Processor cores of each.", min=1)] = SAID.cores,
    cameras: Annotated[int, typer.Option(help="Cameras.", min=1)] = SAID.cameras,
    rate: Annotated[float, typer.Option(help="Pictures per second of each.", min=0.001)] = SAID.rate,
    deadline: Annotated[str, typer.Option(help="How soon answers must be there.")] = SAID.deadline,
    cloud: Annotated[bool, typer.Option(help="A cloud behind a link.")] = SAID.cloud,
    uplink: Annotated[str, typer.Option(help="Rate of the link to the cloud.")] = SAID.uplink,
    file: Annotated[Path | None, typer.Option("--out", help="File; left out: print it.")] = None,
    read_text: Annotated[
        bool, typer.Option("--read-text", help="Instead, a pipeline that reads text on frames, and these.")
    ] = False,
) -> None:
    """Write a scenario to begin with, explained in comments.

    On a terminal and without options about the site it asks; else options that are left out have a default.
    """
    if read_text:
        why = "is of a site with cameras; leave it out with --read-text"
        refuse_given(context, Answers._fields, why)
        return _read_text(Path("read-text.yaml") if file is None else file)
    given = Answers(boxes, cores, cameras, rate, deadline, cloud, uplink)
    if sys.stdin.isatty() and not any(_said(context, name) for name in Answers._fields):
        given = _asked()
    text = written(given, "site" if file is None else file.stem)
    if file is None:
        sys.stdout.write(text)
        return
    _check_new(file)
    file.write_text(text, encoding="utf-8")
    name = escape(str(file))
    out.print(
        f"wrote [bold]{name}[/bold]; next: edgewise check {name}, edgewise simulate {name}", soft_wrap=True
    )


def _check_new(file: Path) -> None:
    """Refuse a file that is there, or that cannot be written."""
    if file.exists():
        raise RunError(f"--out {file}: exists; name another file, or remove it")
    check_file("--out", file)


def _read_text(file: Path) -> None:
    """A pipeline that reads text with real networks, and the frames that its camera sends, beside it."""
    _check_new(file)
    with extra("demo", "--read-text"):
        from edgewise.demo import reading
    reading.model_file()
    frames = [file.with_name(f"frame{i}.bmp") for i in range(len(reading.SIGNS))]
    for frame, signs in zip(frames, reading.SIGNS, strict=True):
        frame.write_bytes(reading.frame(signs))
    file.write_text(yaml.safe_dump(reading.scenario(frames), sort_keys=False), encoding="utf-8")
    lines = reading.recognise(reading.classify(reading.detect(frames[0].read_bytes())[1])[1])[1]
    out.print(f"first frame reads: {escape(' | '.join(lines))}")
    name = escape(str(file))
    out.print(f"wrote [bold]{name}[/bold]; next: edgewise up {name}, then edgewise load", soft_wrap=True)


def _said(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def _asked() -> Answers:
    """Answers of a person; what is asked goes to standard error."""
    found: dict[str, Any] = {}
    for name, question in QUESTIONS.items():
        if name == "uplink" and not found["cloud"]:
            continue
        usual = getattr(SAID, name)
        if isinstance(usual, bool):
            found[name] = typer.confirm(question, default=usual, err=True)
        else:
            found[name] = typer.prompt(question, default=usual, type=type(usual), err=True)
    return Answers(**found)


def written(given: Answers, name: str) -> str:
    """A scenario as text.

    Raises:
        ScenarioError: an answer does not fit; says which key of the scenario has it.
    """
    from edgewise.config import Files  # slow to import

    kept = "".join(each if each.isalnum() or each in "._-" else "-" for each in name).lstrip("._-") or "site"
    text = TEXT.format(
        name=kept,
        of=f"{given.cameras} cameras and {given.boxes} boxes{', with a cloud' if given.cloud else ''}",
        cloud_cluster=CLOUD_CLUSTER if given.cloud else "",
        cloud_links=CLOUD_LINKS.format(uplink=given.uplink) if given.cloud else "",
        cloud_workers=CLOUD_WORKERS if given.cloud else "",
        **given._asdict(),
    )
    parse_scenario(yaml.safe_load(text), kept, Files())
    return text


TEXT = """\
# A site with cameras, and boxes that look for things in their pictures. Change what is different at yours;
# then ask:
#   edgewise check FILE       what there is, how much is asked of it, and what nobody can serve
#   edgewise simulate FILE    what becomes of the pictures, and what breaks first
#   edgewise size FILE --vary clusters.edge.nodes.box.count=1..8 --target streams.ok=99%
# The reference of scenario files explains every key; sizes and times may have units, as 50kB, 200ms, 50Mbps.
name: {name}
description: {of}.
duration_s: 120        # how long a run lasts
window_s: 20           # results are also shown by windows of this length
sharing: fifo          # messages on one link wait for each other, as on a real one

catalog: {{use: detection}}   # the detectors that come with edgewise; `edgewise catalog` lists them

clusters:              # where pictures are looked at
  - name: edge
    tier: 0            # 0 is nearest to the cameras
    nodes:
      - name: box      # with `cost: 900` beside it, `edgewise size` counts money in place of cores
        count: {boxes}
        resources: {{cpu_cores: {cores}, memory_bytes: 16GB}}
{cloud_cluster}
sites:                 # where cameras are; each has a gateway, which decides where their pictures go
  - {{name: site, cluster: edge, access_delay_s: 1ms, uplink_bps: 1Gbps}}

links:                 # from the site to each cluster, and back
  - {{site: site, cluster: edge, delay_s: 0.5ms, bandwidth_bps: 1Gbps}}
{cloud_links}
workers:               # which detector runs where; `fill`: as many as there is room for
  - {{variant: mobilenet-ssd-cpu1, cluster: edge, count: fill}}
{cloud_workers}
streams:
  sources:             # streams that stay
    - name: camera
      count: {cameras}          # at each site
      task: detection
      rate_qps: {rate:g}        # pictures per second
      size_bytes: 50kB   # of a picture
      deadline_s: {deadline}  # an answer that comes later is of no use
      min_accuracy: 30   # mean average precision that is good enough, in percent
"""

CLOUD_CLUSTER = """\
  - name: cloud
    tier: 1
    nodes: [{name: cloud, resources: {cpu_cores: 32, memory_bytes: 64GB}}]
"""

CLOUD_LINKS = """\
  - {{site: site, cluster: cloud, delay_s: 20ms, deviation_s: 2ms, over: wan}}
  - {{name: wan, bandwidth_bps: {uplink}}}   # what runs over one cable shares it
"""

CLOUD_WORKERS = """\
  - {variant: mobilenet-ssd-cpu2, cluster: cloud, count: 8}
"""
