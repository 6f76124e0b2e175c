"""The slot loop of deferrable jobs, slow and plain as the formulas: the oracle of `sim.slots.defer`."""


def naive_run(jobs, left_over, rank, delay_weight=2.0, violation_weight=10.0, skip=False):
    """One world. jobs: dicts g, e, l, d, c (list per resource); left_over: (T, R) lists.

    rank(job, t) -> score. Returns (reward, starts).
    """
    starts = {}
    share = [1.0] * len(left_over[0])
    for t, capacity in enumerate(left_over):
        running = [j for j, s in starts.items() if s <= t <= s + jobs[j]["d"] - 1]
        use = [sum(jobs[j]["c"][r] for j in running) for r in range(len(capacity))]
        waiting = [
            j for j, job in enumerate(jobs) if j not in starts and job["g"] <= t and job["e"] <= t <= job["l"]
        ]
        for j in sorted(waiting, key=lambda j: (-rank(jobs[j], t), jobs[j]["g"], j)):
            if all(u + c <= cap for u, c, cap in zip(use, jobs[j]["c"], capacity, strict=True)):
                starts[j] = t
                use = [u + c for u, c in zip(use, jobs[j]["c"], strict=True)]
            elif not skip:
                break
    return objective(jobs, starts, left_over, delay_weight, violation_weight, share), starts


def objective(jobs, starts, left_over, delay_weight, violation_weight, share):
    """Σ X (r - ω1 p) - ω2 Σ v, straight from the formula (OSDEC eq. 1)."""
    value = sum(jobs[j]["c"][0] * jobs[j]["d"] - delay_weight * (s - jobs[j]["e"]) for j, s in starts.items())
    for t, capacity in enumerate(left_over):
        for r, cap in enumerate(capacity):
            use = sum(jobs[j]["c"][r] for j, s in starts.items() if s <= t < s + jobs[j]["d"])
            value -= violation_weight * share[r] * max(0.0, use - cap)
    return value
