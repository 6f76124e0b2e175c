"""Who asks by the retry rule hears why, when it was refused until its time was over."""

import asyncio

import pytest

from edgewise.runtime import http
from edgewise.runtime.clients.reaching import ask


class Refusing:
    """A client whose first answers are these, and which then hears nothing."""

    def __init__(self, *statuses):
        self.left = list(statuses)

    async def request(self, *_):
        if not self.left:
            raise TimeoutError
        return http.failure(self.left.pop(0), "make room")


def test_the_last_refusal_is_the_answer():
    answer = asyncio.run(ask(Refusing(503, 503), "POST", "/v1/admin/jobs"))
    assert answer.status == 503 and b"make room" in answer.body


@pytest.mark.parametrize(("statuses", "path"), [((), "/v1/admin/jobs"), ((503,), "/v1/streams")])
def test_where_nothing_is_known_of_the_last_try_time_is_over(statuses, path):
    with pytest.raises(TimeoutError):
        asyncio.run(ask(Refusing(*statuses), "POST", path))
