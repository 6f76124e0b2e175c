"""Commands that other packages offer.

A package declares an entry point of the group `edgewise.commands`, or of `edgewise.commands.train` for what
can be trained: its name is the command's, its value a Typer application that has it.

    [project.entry-points."edgewise.commands"]
    reproduce = "edgewise_studies.cli:app"
"""

from importlib.metadata import entry_points
from typing import Any, ClassVar

from typer.core import TyperGroup
from typer.main import get_group

from edgewise.errors import EdgewiseError


class Offered(TyperGroup):
    """Commands, and behind them those that other packages offer."""

    offered: ClassVar[str] = "edgewise.commands"

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, the offered ones last."""
        own = super().list_commands(ctx)
        return own + sorted({each.name for each in entry_points(group=self.offered)} - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command; one that is offered is imported now.

        Raises:
            EdgewiseError: its package cannot be imported, or has no such command.
        """
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        for entry in entry_points(group=self.offered, name=cmd_name):
            try:
                return get_group(entry.load()).commands[cmd_name]
            except Exception as error:  # foreign code
                raise EdgewiseError(f"command {cmd_name!r} from {entry.value}: {error!r}") from error
        return None
