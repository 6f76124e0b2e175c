"""Fair shares of a service's replicas: nobody idles while anybody waits, and nobody is crowded out."""

import random

import pytest

from edgewise.core.dispatch.shares import (
    ALONE,
    LATELY_S,
    LONGEST_REFUSAL_S,
    MANY,
    MOST_WAITING,
    REFUSED_QPS,
    SHARED,
    Shares,
)


def play(rates, room=3, steps=4_000, seed=0):
    """Each client asks with its probability, one request in four ends: what each asked for, and was given."""
    draw, shares = random.Random(seed), Shares()
    who, went, given, number = {}, [], dict.fromkeys(rates, 0), 0
    for step in range(steps):
        for client, rate in rates.items():
            for _ in range(int(rate) + (draw.random() < rate % 1)):
                number += 1
                who[number] = client
                if shares.enter(0.01 * step, client, number, room):
                    went.append(number)
        if went and draw.random() < 0.25:
            ended = went.pop(draw.randrange(len(went)))
            given[who[ended]] += 1
            went += shares.end(who[ended], ended, room)
        assert len(went) == room or number < room or not shares.next(room)
        shares.validate()
    asked = {client: list(who.values()).count(client) for client in rates}
    return asked, given


@pytest.mark.parametrize("addresses", [1, 2, 5])
def test_who_asks_seldom_gets_all_that_it_asks_for(addresses):
    greedy = {f"greedy-{k}": 2.0 for k in range(addresses)}
    asked, given = play({**greedy, "honest": 0.02})
    assert asked["honest"] > 50 and given["honest"] >= asked["honest"] - 3  # those are under way
    assert max(given[name] for name in greedy) <= 1.2 * min(given[name] for name in greedy)


def test_what_one_does_not_use_others_have():
    (_, alone), (_, beside) = play({"greedy": 2.0}), play({"greedy": 2.0, "idle": 0.001})
    assert sum(beside.values()) >= 0.97 * alone["greedy"]


def test_room_is_filled_whenever_anybody_waits():
    shares = Shares()
    assert [shares.enter(0.0, "a", number, 2) for number in range(5)] == [True, True, False, False, False]
    assert shares.enter(0.0, "b", 5, 2) is False
    assert shares.end("a", 0, 2) == [5]  # the other has none under way
    assert shares.end("b", 5, 4) == [4, 3, 2]  # the latest first, as many as there is room for
    assert shares.end("a", 2, 4) == []
    shares.validate()


def test_a_clients_line_is_bounded_and_who_hangs_up_leaves_it():
    shares = Shares()
    for number in range(1 + MOST_WAITING):
        shares.enter(0.0, "a", number, 1)
    assert shares.enter(0.0, "a", 99, 1) is None and shares.enter(0.0, "b", 100, 1) is False
    assert shares.end("a", MOST_WAITING, 1) == []  # it waited
    assert shares.enter(0.0, "a", 101, 1) is False
    assert shares.end("a", 0, 1) == [100]
    shares.validate()


def test_a_client_that_is_refused_often_is_told_later_and_others_at_once():
    shares = Shares()
    for number in range(2 + MOST_WAITING):
        went = shares.enter(0.0, "a", number, 1)
    assert went is None
    told = [shares.refuse(0.0, "a") for _ in range(200)]
    assert told == pytest.approx([k / REFUSED_QPS for k in range(200)])
    assert shares.refuse(100.0, "a") == 0.0  # long after
    for _ in range(int(2 * LONGEST_REFUSAL_S * REFUSED_QPS)):
        latest = shares.refuse(100.0, "a")
    assert latest == LONGEST_REFUSAL_S
    for number in range(100, 101 + MOST_WAITING):
        shares.enter(100.0, "b", number, 1)
    assert shares.refuse(100.0, "b") == 0.0


def test_room_is_larger_for_a_client_alone_and_clients_are_forgotten():
    shares = Shares()
    assert shares.depth(0.0) == ALONE
    for number, client in enumerate("ab"):
        shares.enter(0.0, client, number, 9)
    assert shares.depth(1.0) == SHARED and shares.depth(2.0 * LATELY_S) == ALONE
    for number in range(2 * MANY):
        shares.end(f"c{number}", number, 9) if shares.enter(100.0 * number, f"c{number}", number, 9) else None
    assert len(shares.clients) <= MANY + 1
    shares.validate()
