"""Write anew what the shipped card of KaiS decides in the golden views; nothing is trained.

python -m bench.golden_cards
"""

import json

import numpy as np

from edgewise.policies.cards import SHIPPED
from edgewise.policies.orchestrate.marginal import MarginalValue, Terms
from edgewise.policies.requests.learned import feature_hash, golden_of
from edgewise.policies.requests.rules import Weighted

CARD = SHIPPED / "kais" / "kais-scarce.json"


def main() -> None:
    """Rewrite the card, an entry a line."""
    about = json.loads(CARD.read_text(encoding="utf-8"))
    half, whole = about["requests"], about["orchestrate"]
    known = np.array(whole["rate_qps"]), np.array(whole["time_s"])
    policies = Weighted(np.array(half["weights"])), MarginalValue(Terms(**whole["terms"]), *known)
    for part, policy in zip((half, whole), policies, strict=True):
        part |= golden_of(policy, known[0].size)
    kept = {name: {key: part[key] for key in part if key not in ("onnx_sha256", "inputs", "note")}
            for name, part in (("requests", half), ("orchestrate", whole))}  # fmt: skip
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in
             (about | {"features_sha256": feature_hash()} | kept).items()]  # fmt: skip
    CARD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
