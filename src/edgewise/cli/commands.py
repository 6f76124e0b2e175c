"""Commands, imported when they are called, and those that other packages offer.

A package declares an entry point of the group `edgewise.commands`, of `edgewise.commands.train` for what can
be trained, or of `edgewise.commands.dev` for who develops: its name is the command's, its value a Typer
application that has it.

    [project.entry-points."edgewise.commands"]
    reproduce = "edgewise_studies.cli:app"
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command as built, get_group

from edgewise.cli.output import be_quiet, explain
from edgewise.cli.plain import without_unused
from edgewise.cli.table import DEV, PANELS, VERBS
from edgewise.errors import EdgewiseError

GROUP = "edgewise.commands"


def _quiet() -> Any:
    """The option `--quiet`, as every command has it."""
    said = "Print the answer and errors alone: no notes, no progress."

    def asked(
        quiet: Annotated[
            bool, typer.Option("--quiet", "-q", help=said, callback=be_quiet, expose_value=False)
        ] = False,
    ) -> None:
        """Take the option."""

    one = typer.Typer(add_completion=False)
    one.command()(asked)
    return built(one).params[0]


class Offered(TyperGroup):
    """Commands, and behind them those that other packages offer."""

    offered: ClassVar[str] = GROUP

    def entries(self) -> Mapping[str, EntryPoint]:
        """Of other packages' commands, by name."""
        return {each.name: each for each in entry_points(group=self.offered)}

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, the offered ones last."""
        own = super().list_commands(ctx)
        return own + sorted(self.entries().keys() - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command; one that is offered is imported now.

        Raises:
            EdgewiseError: its package cannot be imported, or has no such command.
        """
        found = super().get_command(ctx, cmd_name)
        if found is None and (entry := self.entries().get(cmd_name)) is not None:
            try:
                found = get_group(entry.load()).commands[cmd_name]
            except Exception as error:  # foreign code
                raise EdgewiseError(f"command {cmd_name!r} from {entry.value}: {error!r}") from error
        return None if found is None else with_quiet(found)


def with_quiet(command: Any) -> Any:
    """A command, and all below a group, that may be told to be quiet."""
    for each in getattr(command, "commands", {}).values():
        with_quiet(each)
    if not hasattr(command, "commands") and all("--quiet" not in each.opts for each in command.params):
        command.params.append(_quiet())
    return command


class Commands(Offered):
    """All commands, in panels; a module is imported when one of its commands is called."""

    listing = False  # only names and what is said of each are wanted

    def entries(self) -> Mapping[str, EntryPoint]:
        """Of other packages' commands, but for those that stand under `edgewise dev`."""
        return {name: entry for name, entry in super().entries().items() if name not in DEV}

    def invoke(self, ctx: Any) -> Any:
        """Run a command; that a connection broke is said: click would take it for its output's."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise EdgewiseError(explain(error)) from error

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the panels, others last."""
        offered = self.entries()
        own = [name for name, verb in VERBS.items() if verb.module or name in offered]
        return own + sorted(offered.keys() - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command with its panel, and what edgewise once had here and now has under `edgewise dev`."""
        verb = VERBS.get(cmd_name)
        if verb is not None and self.listing:
            return TyperCommand(cmd_name, help=verb.about, rich_help_panel=_panel(cmd_name))
        if cmd_name in DEV:
            return self.get_command(ctx, "dev").get_command(ctx, cmd_name)
        if verb is None or not verb.module:
            return super().get_command(ctx, cmd_name)
        module = import_module(f"edgewise.cli.{verb.module}")
        if "edgewise.kernels.compiled" in sys.modules:
            import_module("edgewise.cli.compiling").say_when_compiling()
        found = with_quiet(get_group(module.app).commands[cmd_name])
        found.rich_help_panel = _panel(cmd_name)
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called.

        Raises:
            UsageError: there is none of that name; says which is near.
        """
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            near = get_close_matches(name, self.list_commands(ctx), 1, 0.7)
            ctx.fail(f"no command {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Help, without any module."""
        with self._listing(), without_unused():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Names that begin so, without any module."""
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self.listing = True
        try:
            yield
        finally:
            self.listing = False


class Developing(Offered):
    """Commands for who develops edgewise."""

    offered = f"{GROUP}.dev"

    def entries(self) -> Mapping[str, EntryPoint]:
        """Of other packages' commands: what is offered for developers, wherever its package says so."""
        elsewhere = {each.name: each for each in entry_points(group=GROUP) if each.name in DEV}
        return {**elsewhere, **super().entries()}


def _panel(name: str) -> str:
    return next(panel for panel, verbs in PANELS.items() if name in verbs)


def verbs() -> typer.Typer:
    """An application for the commands of one module."""
    return typer.Typer(rich_markup_mode="rich", add_completion=False)
