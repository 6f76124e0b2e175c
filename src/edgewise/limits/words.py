"""What a limit is, and how it is said."""

from collections.abc import Sequence
from typing import Any, NamedTuple

KINDS = ("link", "node", "worker", "deadline", "variant", "policy")
SHOWN = 2  # the first to break and the next
NEAR = 0.5  # share of its capacity from which on what breaks next is worth a word


class Cure(NamedTuple):
    """A change of a scenario that may help.

    Attributes:
        text: in words, as "raise links.wan.bandwidth_bps to 300 Mbit/s".
        changes: dotted path → value, as `--set` takes them; none: it cannot be set so, and is not tried.
    """

    text: str
    changes: tuple[tuple[str, Any], ...] = ()


class Limit(NamedTuple):
    """What limits a run, or would with more work.

    Attributes:
        kind: of `KINDS`; a policy limits where there was room, and work came late or was refused.
        name: of the link, node, workers or application.
        share: of its capacity that was asked for at the busiest time; of a deadline the least delay there is
            over it; None: it has none.
        lost: share of the work of its kind that was lost to it; 0 of what would be next.
        when_s: since when work is lost to it; None: nothing yet.
        text: all of it in a sentence.
        cures: what may help, the most direct first.
    """

    kind: str
    name: str
    share: float | None
    lost: float
    when_s: float | None
    text: str
    cures: tuple[Cure, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        cures = [{"text": each.text, "changes": dict(each.changes)} for each in self.cures]
        return {**self._asdict(), "cures": cures}


def ordered(found: Sequence[Limit]) -> list[Limit]:
    """The first to break first: what most is lost to, then what is fullest."""
    return sorted(found, key=lambda each: (-each.lost, -(each.share or 0.0), each.name))


def in_words(found: Sequence[Limit]) -> list[str]:
    """A sentence for the first to break and one for the next."""
    lines: list[str] = []
    for limit in ordered(found):
        if len(lines) < SHOWN and (limit.lost > 0.0 or (limit.share or 0.0) >= NEAR):
            broken = limit.lost > 0.0
            head = (
                ("first to break", "next")[len(lines)] if broken or lines else "first to break with more work"
            )
            lines.append(f"{head}: {limit.text}")
    return lines or ["nothing is near its limit: no link, node or worker is half full at its busiest"]


def moment(at_s: float) -> str:
    """A time of a run, as people say it: "minute 3"."""
    for unit_s, name, least in ((86400.0, "day", 2), (3600.0, "hour", 2), (60.0, "minute", 2)):
        if at_s >= least * unit_s:
            return f"{name} {at_s / unit_s:.3g}"
    return f"second {at_s:.3g}"


def since(when_s: float | None) -> str:
    """From when on; nothing where it is from the beginning."""
    return "" if not when_s else f" from {moment(when_s)} on"


def took(seconds: float) -> str:
    """A span of time."""
    if seconds < 1.0:
        return f"{1e3 * seconds:.3g} ms"
    for unit_s, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 3 * unit_s:
            return f"{seconds / unit_s:.3g} {name}"
    return f"{seconds:.3g} s"


def percent(share: float) -> str:
    """A share, with a digit behind the point where it is small."""
    return f"{100.0 * share:.1f} %" if 0.0 < share < 0.1 else f"{100.0 * share:.0f} %"


def alike(names: Sequence[str]) -> str:
    """A name, and how many others are like it."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} alike"
