"""Complete looks at test seeds: each has seeds of its own, and asks what was fixed before.

Look 1 is all that was done at seeds 1,000,000 and on, which all reproductions shared, and repeated. They are
used up: quick runs take them, to try things out. Each later look of a reproduction has seeds that are drawn
for it. What it will ask is frozen first (`edgewise dev freeze NAME --look`); after it, `look` of the
reproduction is raised for the next one, and the figures of both are shown.
"""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from edgewise.errors import RunError, ScenarioError
from edgewise.seeds import TEST
from edgewise_studies.frozen import check_setting, digest_of, read_frozen, read_looks, setting_text

if TYPE_CHECKING:
    from edgewise_studies.run import Reproduction

USED_UP = 1
STRIDE = 1_000  # seeds of a look, at most


def test_range(name: str, look: int) -> range:
    """Seeds of a look: drawn by a hash of name and number, so that nobody chooses them."""
    if look == USED_UP:
        return TEST[:STRIDE]
    drawn = int(digest_of(f"{name}, look {look}"), 16) % (len(TEST) // STRIDE - 1)
    return TEST[STRIDE * (drawn + 1) : STRIDE * (drawn + 2)]


def predicates(what: "Reproduction") -> str:
    """JSON of all that the next look will ask: claims, seeds, and hashes of the source.

    The criteria stand in the source, which is why it may not change in between.
    """
    claims = {
        id: {"statement": statement, "method": what.method(id), "setting": what.setting_of(id)}
        for id, statement in what.claims.items()
    }
    seeds = what.test_seeds(quick=False)
    source = {file.name: digest_of(file.read_text(encoding="utf-8")) for file in _source(what)}
    whole = {"look": what.look, "seeds": [seeds.start, seeds.stop], "claims": claims, "source": source}
    return setting_text(whole)


def _source(what: "Reproduction") -> list[Path]:
    """The file that measures, those beside it that it uses or that begin with its name, and claims.py."""
    file = Path(inspect.getfile(what.measure))
    parts = vars(inspect.getmodule(what.measure)).values()
    used = {Path(getattr(part, "__file__", None) or "") for part in parts if inspect.ismodule(part)}
    beside = {path for path in used if path.parent == file.parent}
    return [
        *sorted(beside | set(file.parent.glob(f"{file.stem}*.py"))),
        Path(__file__).with_name("claims.py"),
    ]


def frozen_as(what: "Reproduction") -> str:
    """Name of the predicates of the next look among what is frozen."""
    return f"{what.name}-look-{what.look}"


def check_unseen(what: "Reproduction", results: Path) -> None:
    """A look that is published asks what was fixed before, on seeds that none before it has used.

    Raises:
        ScenarioError: its predicates are not frozen, or differ from what was frozen.
        RunError: a look at these seeds is published already.
    """
    if frozen_as(what) not in read_frozen(results):
        raise ScenarioError(
            f"reproduce {what.name}: what look {what.look} asks is not frozen; run `edgewise dev freeze "
            f"{what.name} --look` once, before it: claims need what was fixed beforehand"
        )
    check_setting(frozen_as(what), predicates(what), results)
    first = what.test_seeds(quick=False).start
    for look in read_looks(results):
        if look["paper"] == what.name and first in look["seeds"]:
            raise RunError(
                f"reproduce {what.name}: its seeds from {first} on were looked at on {look['time']}; a "
                "repeated look takes fresh ones: raise `look` of the reproduction, and freeze that"
            )
