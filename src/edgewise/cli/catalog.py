"""`edgewise catalog`: what the models and variants of a catalog are, and where their figures come from."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgewise import config

out = Console()


def catalog(
    name: Annotated[str, typer.Argument(help="A catalog file, or the name of a shipped one.")] = "detection",
) -> None:
    """List the variants of a catalog: delay, capacity, accuracy, and whether measured or scaled."""
    listed = config.load_catalog(name)
    table = Table(
        "model", "variant", "delay ms", "capacity q/s", "batch", "accuracy", "figures", "source", box=None
    )
    for variant in listed.variants:
        profile = variant.profile
        table.add_row(
            escape(variant.model),
            escape(variant.name),
            f"{1e3 * profile.delay_s(variant.largest_bytes):.3g}",
            f"{variant.capacity_qps:.3g}",
            str(variant.max_batch),
            f"{listed.model(variant.model).accuracy:g}",
            origin(profile.source),
            escape(profile.source.removeprefix("measured on ").removeprefix("scaled from ")),
        )
    out.print(table)
    if name not in config.shipped_catalogs():
        return
    out.print("delay: batch of one at the largest payload; accuracy: COCO AP50 in %", highlight=False)


def origin(source: str) -> str:
    """How a profile's figures came about, by the first words of its source."""
    if source.startswith("measured on"):
        return "measured"
    return "scaled" if source.startswith("scaled from") else "not said"
