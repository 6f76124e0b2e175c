"""`python -m edgewise_studies.pages`: a page of each paper, from what was measured and what is said of it.

docs/results/PAPER/claims.json      the claims of the look that is published, and still stand
docs/results/PAPER/former.json      those of the look before it, where there was one
docs/results/PAPER/withdrawn.json   those of it that do not, each with the reason
docs/results/PAPER/said.yaml        by hand: what the paper says, which claims answer it, and why
docs/results/PAPER/index.md, claims.csv   written here

A paper may have a second reproduction, of its method as published: its folder has no said.yaml, and what it
found stands on the page of the paper, as FOLDER/CLAIM.

A paper's statement is answered by claims about the paper's method alone; what is found with a method of
edgewise's own stands beside it and decides nothing.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from edgewise_studies.claims import Criterion, Status
from edgewise_studies.frozen import read_looks, results_folder

COLUMNS = ("id", "statement", "method", "setting", "status", "estimate", "low", "high", "n", "asked")
Row = Mapping[str, Any]  # a claim as claims.json has it


@dataclass(frozen=True, slots=True)
class Said:
    """What is said by hand of one paper.

    Attributes:
        title, intro: of the page; intro says where the results were measured otherwise than the code is now.
        statements: of the paper, each `says`, `published`, `claims` (ids) and `why`; `verdict` where no
            claim that stands answers it, and the figures are in `why`.
        asked_now: id → (least, most) that a claim of the look needs by what is asked today.
        past: id → why, of claims past the paper that do not hold.
        figures: names of pictures.
        extras: of the package of studies that a full run needs.
        parts: folders of other reproductions of the paper.
    """

    title: str
    intro: str
    statements: Sequence[Mapping[str, Any]]
    asked_now: Mapping[str, Sequence[float]]
    past: Mapping[str, str]
    figures: Sequence[str]
    extras: str
    parts: Sequence[str]


def read_said(folder: Path) -> Said:
    """What is said of the paper of a folder."""
    read = yaml.safe_load((folder / "said.yaml").read_text(encoding="utf-8"))
    return Said(**{"asked_now": {}, "past": {}, "figures": (), "extras": "", "parts": ()} | read)


def read_claims(folder: Path, file: str = "claims.json") -> list[Row]:
    """Claims that were published and stand, or those that do not; none where there is no file."""
    path = folder / file
    return json.loads(path.read_text(encoding="utf-8"))["claims"] if path.is_file() else []


def status_now(claim: Row, asked_now: Mapping[str, Sequence[float]]) -> Status:
    """The status of a claim by what is asked today."""
    if claim["id"] not in asked_now or claim["ci"] is None:
        return claim["status"]  # type: ignore[no-any-return]
    return Criterion(*map(float, asked_now[claim["id"]])).status(*claim["ci"])


def verdict(statuses: Iterable[Status]) -> str:
    """What several claims say together."""
    found = set(statuses)
    if found == {"holds"}:
        return "confirmed"
    if "holds" not in found and "fails" in found:
        return "refuted"
    return "partly" if found & {"holds", "fails"} else "open"


def write(folder: Path, looks: Sequence[Mapping[str, Any]]) -> Path:
    """Page and points of the paper of a folder; where the page is."""
    said, folders = read_said(folder), [folder]
    folders += [folder.parent / part for part in said.parts]
    for each in folders:
        _points(each / "claims.csv", read_claims(each), said)
    known = all_claims(folder, said)
    parts = [
        f"# {said.title}\n\n{said.intro.strip()}",
        "\n\n".join([*(_measured(each, looks) for each in folders), _READING]),
        _statements(said, known),
        _past(said, known),
        _details(said, known),
        _former(all_claims(folder, said, "former.json")),
        _withdrawn(read_claims(folder, "withdrawn.json")),
        "\n\n".join(f"![{Path(name).stem}]({name})" for name in said.figures),
        _repeat(folders, said.extras),
    ]
    place = folder / "index.md"
    place.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return place


def all_claims(folder: Path, said: Said, file: str = "claims.json") -> dict[str, Row]:
    """Claims of a paper by id, those of other parts as FOLDER/ID."""
    found = {claim["id"]: claim for claim in read_claims(folder, file)}
    for part in said.parts:
        for claim in read_claims(folder.parent / part, file):
            found[f"{part}/{claim['id']}"] = {**claim, "id": f"{part}/{claim['id']}"}
    return found


_READING = (
    "*Here* is estimate and 95 % interval. A verdict is on the paper's method alone: where only a method of "
    "our own was measured it is *open*, and what ours comes to stands beside."
)


def _points(path: Path, claims: Iterable[Row], said: Said) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for claim in claims:
            low, high = claim["ci"] or ("", "")
            whose = claim["method"], claim["setting"], status_now(claim, said.asked_now)
            asked = claim["detail"].partition(";")[0]
            writer.writerow(
                (claim["id"], claim["statement"], *whose, claim["estimate"], low, high, claim["n"], asked)
            )


def _measured(folder: Path, looks: Sequence[Mapping[str, Any]]) -> str:
    whole = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    first, last = whole["seeds"][0], whole["seeds"][-1]
    same = [look for look in looks if look["paper"] == folder.name and look["seeds"] == whole["seeds"]]
    (*before, look) = [look for look in same if look["finished"] and not look["quick"]]
    again = f" It was look {len(before) + 1} at these seeds." if before else ""
    at = f"../{folder.name}/"
    return (
        f"`{folder.name}` was measured on {look['time'][:10]} by the code of commit `{look['commit'][:10]}` "
        f"on {len(whole['seeds'])} test seeds, {first} to {last}, in {whole['elapsed_s'] / 60.0:.0f} minutes."
        f"{again} Every claim is in [claims.json]({at}claims.json), and as points in "
        f"[claims.csv]({at}claims.csv)."
    )


def _statements(said: Said, known: Mapping[str, Row]) -> str:
    rows = []
    for each in said.statements:
        claims = [known[id] for id in each.get("claims", ())]
        theirs, ours = (
            verdict([status_now(c, said.asked_now) for c in claims if c["method"] == method])
            for method in ("as published", "edgewise")
        )
        if any(c["method"] == "edgewise" for c in claims) and theirs == "open":
            theirs = f"open (ours: {ours})"
        here = "<br>".join(f"`{c['id']}` {_figure(c)}" for c in claims) or "–"
        decided = each.get("verdict", theirs)
        rows.append((each["says"], str(each["published"]), here, f"**{decided}**", each.get("why", "")))
    head = ("the paper says", "published", "here", "verdict", "why, and when otherwise")
    return "## What the paper says\n\n" + _table(head, rows)


def _past(said: Said, known: Mapping[str, Row]) -> str:
    if not said.past:
        return ""
    lines = [
        f"- `{id}`, {known[id]['statement'].removeprefix('beyond: ')}: {_figure(known[id])}, "
        f"{status_now(known[id], said.asked_now)}. {' '.join(why.split())}"
        for id, why in said.past.items()
    ]
    return "## What does not hold past the paper\n\n" + "\n".join(lines)


def _figure(claim: Row) -> str:
    if claim["estimate"] is None:
        return "not measured"
    low, high = claim["ci"] or (None, None)
    interval = f" [{low:.3g}, {high:.3g}]" if low is not None and low != high else ""
    return f"{claim['estimate']:.3g}{interval}"


def _details(said: Said, known: Mapping[str, Row]) -> str:
    rows = []
    for claim in known.values():
        now = status_now(claim, said.asked_now)
        status = now if now == claim["status"] else f"{claim['status']} as asked then, {now} as asked now"
        asked = claim["detail"].partition(";")[0]
        whose = claim["method"], claim["setting"], _figure(claim), str(claim["n"]), asked, status
        rows.append((f"`{claim['id']}`", claim["statement"], *whose))
    head = ("claim", "statement", "method", "setting", "here", "n", "asked", "status")
    return "## Every claim\n\n" + _table(head, rows)


def _former(known: Mapping[str, Row]) -> str:
    if not known:
        return ""
    rows = [(f"`{each['id']}`", _figure(each), str(each["n"]), each["status"]) for each in known.values()]
    parts = dict.fromkeys(id.rpartition("/")[0] for id in known)
    paths = [f"../{part}/former.json" if part else "former.json" for part in parts]
    links = ", ".join(f"[{path.removeprefix('../')}]({path})" for path in paths)
    text = f"What it found, at other seeds, by the code and the criteria of then: {links}."
    return f"## The look before\n\n{text}\n\n" + _table(("claim", "here", "n", "status"), rows)


def _withdrawn(claims: Sequence[Row]) -> str:
    if not claims:
        return ""
    reasons: dict[str, list[str]] = {}
    for claim in claims:
        reasons.setdefault(claim["why"], []).append(f"`{claim['id']}`")
    lines = [f"- {', '.join(ids)}: {why}." for why, ids in reasons.items()]
    text = "Published once with the figures above and no longer claimed; the figures are kept in"
    return f"## Withdrawn\n\n{text} [withdrawn.json](withdrawn.json).\n\n" + "\n".join(lines)


def _repeat(folders: Sequence[Path], extras: str) -> str:
    lines = [
        "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e . -e './studies" + extras + "'"
    ]
    for folder in folders:
        seeds = json.loads((folder / "claims.json").read_text(encoding="utf-8"))["seeds"]
        span = f"{seeds[0]}:{seeds[-1] + 1}"
        lines.append(f"  && .venv/bin/edgewise reproduce {folder.name} --seeds {span}")
    command = " \\\n".join(lines)
    return f"""## Repeat it

From a clean checkout, with the code as it is now; `git checkout` of the commit above gives the code of then:

```sh
{command}
```"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"

    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])


def main() -> None:
    """Write every page."""
    results = results_folder()
    for said in sorted(results.glob("*/said.yaml")):
        print(write(said.parent, read_looks(results)))


if __name__ == "__main__":
    main()
