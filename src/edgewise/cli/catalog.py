"""`edgewise catalog`: what the models and variants of a catalog are, and where their figures come from."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from edgewise import config
from edgewise.cli.output import out


def catalog(
    name: Annotated[str, typer.Argument(help="A catalog file, or the name of a shipped one.")] = "detection",
) -> None:
    """List the variants of a catalog: delay, capacity, accuracy, and whether measured or scaled."""
    listed = config.load_catalog(name)
    sources = list(dict.fromkeys(variant.profile.source for variant in listed.variants))
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("model", "variant", "ms", "q/s", "batch", "acc.", "figures", "source"):
        table.add_column(column, overflow="fold", no_wrap=column in ("variant", "figures"))
    for variant in listed.variants:
        profile = variant.profile
        table.add_row(
            escape(variant.model),
            escape(variant.name),
            f"{1e3 * profile.delay_s(variant.largest_bytes):.3g}",
            f"{variant.capacity_qps:.4g}",
            str(variant.max_batch),
            f"{listed.model(variant.model).accuracy:g}",
            origin(profile.source),
            f"({1 + sources.index(profile.source)})",
        )
    out.print(table)
    out.print("ms: delay of one query; q/s: capacity; batch: the largest; acc.: accuracy of the model")
    for number, source in enumerate(sources, start=1):
        out.print(f"({number}) {source or 'not said'}", highlight=False, markup=False, soft_wrap=True)


def origin(source: str) -> str:
    """How a profile's figures came about, by the first words of its source."""
    if source.startswith("measured on"):
        return "measured"
    return "scaled" if source.startswith("scaled from") else "not said"
