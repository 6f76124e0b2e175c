"""One query of zeros through a gateway, as the test of an installation sends it."""

import pytest

from command_line import edgewise


@pytest.fixture
def url(running):
    return f"http://127.0.0.1:{running.http['score']}"


def test_a_gateway_answers(url, tmp_path):
    said = edgewise("pod", "--ask", url, folder=tmp_path)
    assert said.startswith("score: answered, ")


def test_who_asks_for_what_is_not_there_hears_so(url, tmp_path):
    assert "task nope" in edgewise("pod", "--ask", url, "--task", "nope", folder=tmp_path, code=2)
