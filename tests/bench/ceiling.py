# SPDX-License-Identifier: Apache-2.0
"""The load from which any scheduler must refuse a pod, even one that knows all arrivals beforehand.

Only GPUs are counted, no CPU, memory, models or nodes: all that have arrived need a GPU for each whole one, and for their
parts at least as many as cutting stock needs (Gilmore and Gomory: the least mixture of patterns, each a set of parts that one
GPU holds). Its dual gives every size of part a weight such that no set of parts that fit one GPU weighs more than 1, so that
the weights of all parts are a bound from below. They are scaled until that holds exactly: rounding cannot make it too high.
"""

import collections

UNIT = 100  # parts of a GPU that are told apart, as in the scheduler
ROUNDS_MAX = 1000  # it ends after a hundred or so; each gives a bound
EXACT = 1e-9


def heaviest(weights):
    """The set of parts that fit one GPU and weigh most together, and their weight."""
    best, last = [0.0] * (UNIT + 1), [None] * (UNIT + 1)
    for room in range(1, UNIT + 1):
        best[room] = best[room - 1]
        for size, weight in weights.items():
            if size <= room and best[room - size] + weight > best[room]:
                best[room], last[room] = best[room - size] + weight, size
    parts, room = collections.Counter(), UNIT
    while room > 0:
        if last[room]:
            parts[last[room]] += 1
        room -= last[room] or 1
    return parts, best[UNIT]


def gpus_for(parts):
    """At least so many GPUs for so many parts of each size (in percent)."""
    sizes = sorted(parts)
    each = [UNIT // size for size in sizes]
    places = range(len(sizes))
    # The simplex method with columns made when they are needed; at first each GPU holds parts of one size.
    inverse = [[1 / each[i] if i == j else 0.0 for j in places] for i in places]
    used = [parts[size] / n for size, n in zip(sizes, each, strict=True)]
    most = 0
    for _ in range(ROUNDS_MAX):
        weights = {size: sum(row[i] for row in inverse) for i, size in enumerate(sizes)}
        pattern, weight = heaviest(weights)
        most = max(most, sum(parts[size] * weights[size] for size in sizes) / max(weight, 1))
        if weight <= 1 + EXACT:
            break
        column = [sum(row[i] * pattern[size] for i, size in enumerate(sizes)) for row in inverse]
        out = min((i for i in places if column[i] > EXACT), key=lambda i: used[i] / column[i])
        inverse[out] = [x / column[out] for x in inverse[out]]
        used[out] /= column[out]
        for i in places:
            if i != out:
                inverse[i] = [x - column[i] * y for x, y in zip(inverse[i], inverse[out], strict=True)]
                used[i] -= column[i] * used[out]
    return most


def gpus_needed(pods):
    """By pods as (GPUs, thousandths of each)."""
    whole, parts = 0, collections.Counter()
    for gpus, milli in pods:
        percent = -(-milli * UNIT // 1000)
        if percent == UNIT:
            whole += gpus
        elif percent > 0:
            parts[percent] += gpus
    return whole + gpus_for(parts)


def load_of_refusal(pods, total):
    """The load (percent of `total` GPUs) at which the first pod arrives that cannot have room beside all before it; None if
    there is room for all."""
    low, high = 0, len(pods)
    if gpus_needed(pods) <= total:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if gpus_needed(pods[:middle]) <= total else (low, middle)
    return sum(gpus * milli for gpus, milli in pods[:high]) / total / 10
