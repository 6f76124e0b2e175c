"""A future for answers that are due soon, and whose waiter needs no task."""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Later(asyncio.Future[T]):
    """A future that may call one function at the moment it is done, not in a later turn of the event loop.

    A server's connection that runs a coroutine up to here goes on by that function. A task would cost as much
    as reading a request, and a turn of the loop between any two steps. Elsewhere it is a future as any other.

    Attributes:
        then: called once when done or cancelled; None does nothing.
    """

    then: Callable[[], None] | None = None

    def set_result(self, result: T) -> None:
        """Mark as done, and go on."""
        super().set_result(result)
        self._go_on()

    def set_exception(self, exception: type[BaseException] | BaseException) -> None:
        """Mark as failed, and go on."""
        super().set_exception(exception)
        self._go_on()

    def cancel(self, msg: Any | None = None) -> bool:
        """Mark as cancelled, and go on; False when it was done already."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._go_on()
        return cancelled

    def _go_on(self) -> None:
        then, self.then = self.then, None
        if then is not None:
            then()


@types.coroutine
def rest_of(coming: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, None, T]:
    """What is left of a coroutine that has come to where it waits for something."""
    while True:
        try:
            yield waits_for
        except BaseException as error:  # its task was cancelled
            try:
                waits_for = coming.throw(error)
            except StopIteration as done:
                return cast(T, done.value)
        else:
            return cast(T, (yield from coming))
