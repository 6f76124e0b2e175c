"""What the command line says of errors of the system that nothing closer has explained."""

import pytest

from edgewise.cli import explain


def raised(act):
    with pytest.raises(OSError) as caught:
        act()
    return explain(caught.value)


def test_a_file_that_is_not_there_names_its_path(tmp_path):
    said = raised(lambda: (tmp_path / "none").read_text())
    assert "none: No such file" in said and "check the path" in said


def test_a_full_disk_is_not_a_matter_of_rights():
    def fill():
        with open("/dev/full", "w") as file:
            file.write("x")

    assert raised(fill) == "No space left on device"


@pytest.mark.parametrize("error", [TimeoutError("no answer within 10 s"), ConnectionResetError("hung up")])
def test_a_silent_other_side_is_not_blamed_on_a_path(error):
    said = explain(error)
    assert str(error) in said and "path" not in said and "did not answer" in said


def test_an_error_without_words_is_named():
    assert explain(TimeoutError()).startswith("TimeoutError")
