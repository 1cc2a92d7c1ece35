"""The beta moving average of DiPrompT (equation 5), read as in CLIPood.

    avg_r = (A_{r-1} / A_r) avg_{r-1} + (alpha_r / A_r) V_r        A_r = alpha_0 + ... + alpha_r
    alpha_i = Beta(beta, beta) density at (i + 0.5) / (R + 1)

If beta is below 1, the weights form a U: the first and the last rounds count most. The density's
constant cancels, so it is left out.
"""

from __future__ import annotations


def alpha(index: int, rounds: int, beta: float) -> float:
    """Return the weight of round `index` of R rounds; 0 is the start; after R it repeats from 1."""
    if index > rounds:
        index = 1 + (index - 1) % rounds
    x = (index + 0.5) / (rounds + 1)
    return float((x * (1.0 - x)) ** (beta - 1.0))
