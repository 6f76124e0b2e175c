"""Views of several trainings: what they leave out, what they show, and how far apart trainings are."""

import numpy as np
import pytest

from edgewise_studies.trainings import crossed, interquartile_mean, profile, resamples


def test_the_middle_half_is_what_counts():
    scores = np.array([[0.0, 1.0, 2.0, 100.0], [0.0, 1.0, 2.0, -100.0]])
    assert interquartile_mean(scores).estimate == pytest.approx(1.0)  # of 0, 1, 1, 2


def test_equal_trainings_leave_no_doubt_and_unlike_ones_do():
    worlds = np.linspace(0.9, 1.1, 20)
    same = interquartile_mean(np.stack([worlds] * 4))
    assert same.ci == pytest.approx((same.estimate, same.estimate))
    unlike = interquartile_mean(np.stack([worlds + shift for shift in (-0.1, 0.0, 0.1)]))
    assert (
        unlike.ci is not None
        and unlike.ci[0] < unlike.estimate - 0.05 < unlike.estimate + 0.05 < unlike.ci[1]
    )


def test_the_interval_holds_the_mean_of_all_trainings_as_often_as_it_says():
    rng, held = np.random.default_rng(5), 0
    for _ in range(200):
        levels = rng.normal(0.0, 1.0, 6)
        ci = interquartile_mean(levels[:, None] + rng.normal(0.0, 0.1, (6, 30))).ci
        held += ci[0] <= 0.0 <= ci[1]
    assert 0.75 <= held / 200 <= 0.97  # resampling six of six is known to be some points too narrow


def test_one_training_has_no_interval():
    assert interquartile_mean(np.ones((1, 5))).ci is None


def test_too_many_to_go_through_are_refused():
    with pytest.raises(ValueError, match="trainings is 7; it must be 1 to 6"):
        resamples(7)


def test_a_profile_falls_from_all_to_none_and_its_band_holds_it():
    scores = np.array([[1.0, 2.0], [2.0, 3.0], [1.5, 2.5]])
    share, low, high = profile(scores, np.array([0.5, 1.75, 3.5]))
    assert share.tolist() == [1.0, pytest.approx(4 / 6), 0.0]
    assert (low <= share).all() and (share <= high).all() and low[1] < high[1]


def test_an_interval_over_trainings_and_worlds_holds_the_mean_as_often_as_it_says():
    rng, held = np.random.default_rng(7), 0
    for _ in range(400):
        trained, worlds = rng.normal(0.0, 1.0, (5, 1)), rng.normal(0.0, 0.7, (1, 10))
        low, high = crossed(trained + worlds + rng.normal(0.0, 0.5, (5, 10))).ci
        held += low <= 0.0 <= high
    assert 0.93 <= held / 400 <= 0.99


def test_crossed_values_without_spread_leave_no_doubt_and_one_row_has_no_interval():
    assert crossed(np.full((3, 4), 0.2)).ci == pytest.approx((0.2, 0.2))
    assert crossed(np.ones((1, 4))).ci is None
