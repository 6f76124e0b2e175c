"""Seeds for training, validation and testing, disjoint by construction.

  0 …   499,999   training (and everyday use: seeds 0:10 are here)
  500,000 …   999,999   validation: choose hyper-parameters, and the rival, on these
1,000,000 … 1,999,999   testing: only `edgewise reproduce` uses them, and notes each look
2,000,000 and above     fresh: never used by anything that ships with edgewise
"""

from collections.abc import Iterable
from typing import Literal

from edgewise.errors import EdgewiseError

TRAINING = range(0, 500_000)
VALIDATION = range(500_000, 1_000_000)
TEST = range(1_000_000, 2_000_000)
# By which a training chooses among its networks; they judge nothing else.
SEEN_IN = tuple(VALIDATION[300:303])

Kind = Literal["training", "validation", "test", "fresh"]


def kind_of(seed: int) -> Kind:
    """What a seed >= 0 may be used for."""
    if seed in TRAINING:
        return "training"
    if seed in VALIDATION:
        return "validation"
    return "test" if seed in TEST else "fresh"


def refuse_test_seeds(seeds: Iterable[int]) -> None:
    """Keep test seeds for `edgewise reproduce`.

    Raises:
        EdgewiseError: one of them is a test seed.
    """
    found = next((seed for seed in seeds if seed in TEST), None)
    if found is not None:
        raise EdgewiseError(
            f"seed {found}: seeds {TEST.start} to {TEST.stop - 1} are for testing, so that published figures "
            "come from seeds nobody tuned on; only `edgewise reproduce` uses them and notes each look. "
            f"Use seeds below {TEST.start} to develop, {TEST.stop} and above for fresh ones"
        )


def only_validation_seeds(seeds: Iterable[int]) -> None:
    """Choices are made on validation seeds.

    Raises:
        EdgewiseError: a seed is of another kind.
    """
    found = next((seed for seed in seeds if seed not in VALIDATION), None)
    if found is not None:
        raise EdgewiseError(
            f"seed {found}: is a {kind_of(found)} seed, and choices are made on validation seeds; "
            f"use {VALIDATION.start} to {VALIDATION.stop - 1}"
        )
