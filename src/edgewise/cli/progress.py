"""How far a command is: a bar on a terminal, elsewhere a plain line now and then; and what Ctrl-C leaves."""

import time
from collections.abc import Callable
from typing import Any, ClassVar, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from edgewise.cli.output import err, say_stopped

EVERY_S = 10.0  # a line, where there is no terminal


class SaidProgress(Progress):
    """A bar on standard error; lines where that is no terminal.

    Args:
        counted: say how many of how many.
        kept: says what is kept where Ctrl-C ends it.
        clock: seconds that pass.
    """

    shown: ClassVar["SaidProgress | None"] = None  # the one that is on the screen

    def __init__(
        self,
        counted: bool = True,
        kept: Callable[[], str] = lambda: "nothing is kept",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            *([MofNCompleteColumn()] if counted else []),
        ]
        super().__init__(
            *columns, TimeElapsedColumn(), console=err, transient=True, disable=not err.is_terminal
        )
        self._counted, self._kept, self._clock = counted, kept, clock
        self._began_s = self._said_s = clock()
        self._beside: TaskID | None = None

    def advance(self, task_id: Any, advance: float = 1) -> None:
        """Count what ended."""
        super().advance(task_id, advance)
        self._say()

    def update(self, task_id: Any, **changes: Any) -> None:
        """Change what is known of a task."""
        super().update(task_id, **changes)
        self._say()

    def beside(self, what: str, done: int, of: int) -> None:
        """Show beside the command's own how far something else is, of `of`; where that ends, no more."""
        if self._beside is None:
            self._beside = self.add_task(what, total=of)
        super().update(self._beside, description=what, completed=done, total=of, visible=done < of)

    def __enter__(self) -> Self:
        super().__enter__()
        SaidProgress.shown = self
        return self

    def _say(self) -> None:
        now_s = self._clock()
        if self.disable and now_s - self._said_s >= EVERY_S:
            self._said_s = now_s
            err.print(f"{self._far()} ({now_s - self._began_s:.0f} s)", highlight=False, markup=False)

    def _far(self) -> str:
        task = self.tasks[0]
        done = (
            f"{task.completed:.0f} of {task.total or 0:.0f}" if self._counted else f"{task.percentage:.0f} %"
        )
        return f"{task.description}: {done}"

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        SaidProgress.shown = None
        super().__exit__(kind, error, trace)
        if kind is KeyboardInterrupt:
            say_stopped(f"{self._far()}; {self._kept()}" if self.tasks else self._kept())
