"""Standard input, output and error as commands find them: closed, full, or with a reader that leaves."""

import io
import os
import sys
from typing import Any, TextIO

READER_LEFT = 141
"""Exit status where nobody reads on: 128 + SIGPIPE, as shells report of `yes | head`."""


class _Descriptor(io.FileIO):
    """A descriptor that is written to until that fails, and from then on leads nowhere.

    Whatever is left in buffers would otherwise fail once more where nobody can say so, at the very end.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            _lead_nowhere(self.fileno())
            if isinstance(error, BrokenPipeError):
                raise SystemExit(READER_LEFT) from None
            raise


def make_usable() -> None:
    """From here on every standard stream can be used, whatever the command was started with.

    What is closed leads nowhere: its descriptor would else be that of the next file that is opened. A reader
    that leaves ends the command with `READER_LEFT`.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            _lead_nowhere(descriptor)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 as long as the process
    sys.stdout, sys.stderr = _watched(sys.stdout, 1), _watched(sys.stderr, 2)


def _lead_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _watched(stream: TextIO | None, descriptor: int) -> TextIO:
    """The stream of a descriptor, over one that is watched; any other is left as it is."""
    if stream is None:
        return open(os.devnull, "w")
    if (
        not isinstance(stream, io.TextIOWrapper)
        or stream is not (sys.__stdout__, sys.__stderr__)[descriptor - 1]
    ):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(descriptor, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
