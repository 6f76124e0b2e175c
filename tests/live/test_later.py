"""`Later`: whoever waits for it goes on at the moment it is done."""

import asyncio

import pytest

from edgewise.runtime.http.messages import Later


def end(later, how):
    if how == "result":
        later.set_result(1)
    elif how == "error":
        later.set_exception(ValueError("no"))
    else:
        later.cancel()


@pytest.mark.parametrize("how", ["result", "error", "cancelled"])
def test_its_function_is_called_once_and_at_once(how):
    async def go():
        called, later = [], Later()
        later.then = lambda: called.append(later.done())
        end(later, how)
        assert called == [True]
        assert not later.cancel() and called == [True]
        if how == "error":
            assert isinstance(later.exception(), ValueError)

    asyncio.run(go())


def test_tasks_wait_for_it_as_for_any_future():
    async def go():
        later = Later()
        waiting = asyncio.gather(*(asyncio.create_task(asyncio.wait_for(later, 5)) for _ in range(2)))
        await asyncio.sleep(0)
        later.set_result(7)
        assert await waiting == [7, 7]

    asyncio.run(go())
