"""`edgewise profile | catalog`: measure a network and write it into a catalog, and what catalogs hold."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from edgewise import config
from edgewise.cli.commands import verbs
from edgewise.cli.lasting import lasting
from edgewise.cli.output import Json, err, note, out, show, wrong
from edgewise.cli.progress import SaidProgress
from edgewise.errors import EdgewiseError, ProfileError, extra
from edgewise.kernels.compiled import cache_root
from edgewise.model.topology import CPU

if TYPE_CHECKING:
    from edgewise.profiling.measure import Measurement


app = verbs()
TASK = "detection"  # of the networks that come with edgewise
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@app.command(epilog="Example: edgewise profile tiny-yolov2-416 --threads 2 --out catalog.yaml")
def profile(
    model: Annotated[
        str, typer.Argument(help="An .onnx file, or yolov3-416, tiny-yolov2-416, mobilenet-ssd-300.")
    ],
    batches: Annotated[str, typer.Option(help="Batch sizes, comma-separated.")] = "1,2,4,8",
    sizes: Annotated[
        str, typer.Option(help="Sizes of the free axes besides the batch, comma-separated.")
    ] = "",
    axis: Annotated[
        list[str] | None, typer.Option(help="Size of one free axis: NAME=N or INPUT[POSITION]=N. Repeatable.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of one run.", min=1, max=1024)] = 1,
    seconds: Annotated[float, lasting("About how long to measure", least_s=1, most_s=3600)] = 20.0,
    providers: Annotated[
        list[str] | None,
        typer.Option(
            "--provider",
            help="Execution provider of ONNX Runtime, the best first; the CPU's by default. Repeatable.",
        ),
    ] = None,
    accelerator_bytes: Annotated[
        float,
        typer.Option(
            "--accelerator-memory", help="Memory of an accelerator that a worker reserves, in bytes.", min=0
        ),
    ] = 0.0,
    name: Annotated[
        str | None, typer.Option(help="Name of the variant; MODEL-cpuTHREADS by default.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Task of the model in the catalog.")] = None,
    accuracy: Annotated[
        float | None, typer.Option(help="Accuracy of the model in the catalog.", min=0)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of made-up weights, tensors and arrivals.", min=0)] = 0,
    catalog: Annotated[Path | None, typer.Option("--out", help="Catalog file to add the variant to.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything measured as JSON.")] = False,
) -> None:
    """Measure delay, memory and sustained rate of an ONNX network on this machine."""
    with extra("live", "profile"):
        from edgewise.profiling import entries, measure, quiet
    for flag, text in (("--name", name), ("--task", task)):
        if text is not None and not NAME.fullmatch(text):
            raise EdgewiseError(f"{flag} {text!r}: use letters, digits and . _ -, a letter or digit first")
    file, known = _find(model, seed)
    called = known["model"] if known else _slug(file.stem)
    if catalog:  # a place that cannot be written, and a wrong catalog, are said at once
        entries.check_place(catalog)
    old = entries.known_model(catalog, called) if catalog else None
    chosen = integers("--sizes", sizes) or ([known["side"]] if known else [])
    axes = dict(_axis(text) for text in axis or [])
    if crowd := quiet.expected():
        _warn(f"{crowd}; end them, or what is measured is not what this hardware can do")
    with SaidProgress(counted=False) as bar:
        row = bar.add_task(model, total=1.0)
        measured = measure.measure(
            file,
            integers("--batches", batches) or [1],
            chosen,
            axes,
            threads,
            seconds,
            seed,
            progress=lambda share, what: bar.update(row, completed=share, description=f"{model}: {what}"),
            providers=providers or (CPU,),
        )
    where = None if known else _seen_from(catalog, file)
    on = measured.providers[0].removesuffix("ExecutionProvider").lower()
    variant = entries.variant_entry(name or f"{called}-{on}{threads}", called, measured, where)
    if accelerator_bytes:
        variant["resources"]["accelerator_memory_bytes"] = accelerator_bytes
    if as_json:
        print(json.dumps({"variant": variant, **asdict(measured)}, indent=2))
    else:
        _show(measured, variant)
    if catalog is not None:
        if accuracy is None:
            accuracy = old.accuracy if old else known.get("ap50")
        task = task or (old.task if old else TASK if known else "inference")
        _write(catalog, entries.model_entry(called, task, accuracy or 0.0), variant, accuracy is None)
    if measured.busy:
        noted = ", and the catalog says so" if catalog is not None else ""
        _warn(f"{'; '.join(measured.busy)}. Do not plan with these figures{noted}; repeat on an idle machine")


def _warn(why: str) -> None:
    wrong.print(f"[bold red]busy machine:[/bold red] {escape(why)}", highlight=False, soft_wrap=True)


def _seen_from(catalog: Path | None, file: Path) -> Path:
    """A file as a catalog names it: paths in files begin in the folder of their file."""
    if catalog is None or file.is_absolute():
        return file.absolute()
    return Path(os.path.relpath(file.resolve(), catalog.resolve().parent))


def integers(flag: str, text: str) -> list[int]:
    """Positive integers of "1,2,4".

    Raises:
        EdgewiseError: anything else.
    """
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = [0]
    if any(number < 1 for number in numbers):
        raise EdgewiseError(f"{flag} {text!r}: write integers >= 1 with commas, for example 1,2,4")
    return numbers


def _axis(text: str) -> tuple[str, int]:
    label, _, size = text.rpartition("=")
    if not label or not size.isdigit() or int(size) < 1:
        raise EdgewiseError(f"--axis {text!r}: write NAME=N with N >= 1, for example sequence=128")
    return label, int(size)


def _find(model: str, seed: int) -> tuple[Path, dict[str, Any]]:
    """The file to measure; and for a network that comes with edgewise, what is known of it."""
    from edgewise.profiling import graphs

    if model not in graphs.BUILDERS:
        path = Path(model)
        if not path.exists():
            raise ProfileError(
                f"{model}: no such file; give an .onnx file or one of {', '.join(graphs.BUILDERS)}"
            )
        return path, {}
    published = graphs.PUBLISHED[model]
    file = graphs.write(model, cache_root() / "graphs", seed)
    return file, {"model": model.rpartition("-")[0], "side": published.side, "ap50": published.ap50}


def _show(measured: "Measurement", variant: dict[str, Any]) -> None:
    rows = [
        (
            "–" if point.side is None else point.side,
            point.batch,
            point.runs,
            f"{1e3 * point.median_s:.2f}",
            f"{1e3 * point.low_s:.2f} … {1e3 * point.high_s:.2f}",
            f"{1e3 * point.p95_s:.2f}",
            f"{1e3 * point.median_s * (1 + error):.2f}",
            f"{100 * error:+.1f} %",
        )
        for point, error in zip(measured.points, measured.fit.errors, strict=True)
    ]
    show(("size", "batch", "runs", "median ms", "16-84 % ms", "p95 ms", "fitted ms", "error"), rows)
    out.print("\n".join(_lines(measured, variant)), highlight=False, markup=False, soft_wrap=True)
    for each in measured.notes:
        note([each])


def _lines(measured: "Measurement", variant: dict[str, Any]) -> Sequence[str]:
    law, fit, load = variant["profile"], measured.fit, measured.load
    return [
        f"variant   {variant['name']}: {law['source']}",
        f"delay     ({1e3 * law['fixed_s']:.4g} ms + {1e9 * law['per_byte_s']:.3g} ns/byte * size) * "
        f"(1 + {law['batch_slope']:.3g} * (batch - 1)); "
        f"error {fit.mean_error:.1%} on average, {fit.max_error:.1%} at most",
        f"payload   {measured.largest_bytes:,} bytes per query at the largest size",
        f"memory    {variant['resources']['memory_bytes'] / 1e6:,.0f} MB for the network and its tensors",
        f"capacity  {variant['capacity_qps']:.3g} queries/s in batches of up to {measured.max_batch}, "
        f"95 % answered within {1e3 * load.bound_s:,.4g} ms",
        f"under load: {load.measured_qps:.3g} queries/s in a trial of {load.queries} queries; the profile "
        f"predicts {load.predicted_qps:.3g} for the same arrivals, {load.long_run_qps:.3g} in the long run",
    ]


def _slug(text: str) -> str:
    """A file's name as the name of a model."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-") or "model"


def _write(catalog: Path, model: dict[str, Any], variant: dict[str, Any], unknown: bool) -> None:
    from edgewise.profiling import entries

    kept = entries.write(catalog, model, variant)
    note(["the accuracy is not known and written as 0; set --accuracy"] if unknown else [])
    note([] if kept else [f"{catalog}: comments were lost"])
    err.print(f"catalog: [bold]{escape(str(catalog))}[/bold]", highlight=False, soft_wrap=True)


@app.command(epilog="Example: edgewise catalog detection")
def catalog(
    name: Annotated[str, typer.Argument(help="A catalog file, or the name of a shipped one.")] = "detection",
    as_json: Json = False,
) -> None:
    """List the variants of a catalog: delay, capacity, accuracy, and whether measured or scaled."""
    listed = config.load_catalog(name)
    if as_json:
        return print(json.dumps([asdict(variant) for variant in listed.variants], indent=1, default=str))
    sources = list(dict.fromkeys(variant.profile.source for variant in listed.variants))
    rows = (
        (
            variant.model,
            variant.name,
            f"{1e3 * variant.profile.delay_s(variant.largest_bytes):.3g}",
            f"{variant.capacity_qps:.4g}",
            variant.max_batch,
            f"{listed.model(variant.model).accuracy:g}",
            origin(variant.profile.source),
            f"({1 + sources.index(variant.profile.source)})",
        )
        for variant in listed.variants
    )
    show(("model", "variant", "ms", "q/s", "batch", "acc.", "figures", "source"), rows)
    out.print("ms: delay of one query; q/s: capacity; batch: the largest; acc.: accuracy of the model")
    for number, source in enumerate(sources, start=1):
        out.print(f"({number}) {source or 'not said'}", highlight=False, markup=False, soft_wrap=True)
    return None


def origin(source: str) -> str:
    """How a profile's figures came about, by the first words of its source."""
    if source.startswith("measured on"):
        return "measured, busy" if "on a busy machine" in source else "measured"
    return "scaled" if source.startswith("scaled from") else "not said"
