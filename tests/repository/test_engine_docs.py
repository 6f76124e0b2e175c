"""The examples of the engine's page run."""

import re
from pathlib import Path


def test_examples_of_the_engine_page_run(capsys):
    page = Path(__file__).parents[2] / "docs" / "engine.md"
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S))
    code = code.replace("@kernel\n", "")  # a kernel needs a file; without the compiler it is a function
    code = code.replace("loop=deciding(least_loaded)).run()", "placement=None)")
    exec(compile(code, str(page), "exec"), {})
    printed = capsys.readouterr().out
    assert "closest 1.0" in printed  # the twin
    (mean,) = re.findall(r"^([\d.]+) \[", printed, re.M)
    assert float(mean) > 0.25  # 0.2 s + 0.025 s of work and 0.018 s on the bus
