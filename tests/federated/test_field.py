"""Shamir sharing: round trips, what too few shares say, and fixed vectors."""

from __future__ import annotations

from itertools import combinations

import pytest

from dptune.federated.errors import ProtocolError
from dptune.federated.field import PRIME, join, new_secret, split


def _is_prime(n: int) -> bool:
    d, s = n - 1, 0
    while d % 2 == 0:
        d, s = d // 2, s + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47):
        x = pow(base, d, n)
        if x in (1, n - 1):
            continue
        for _ in range(s - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def test_the_modulus_is_prime() -> None:
    assert _is_prime(PRIME)
    assert not any(_is_prime(candidate) for candidate in range(PRIME + 2, 2**256, 2))


def test_every_subset_of_the_threshold_size_opens() -> None:
    secret = new_secret()
    shares = split(secret, [0, 3, 4, 9, 250], 3)
    for chosen in combinations(shares, 3):
        assert join({j: shares[j] for j in chosen}, 3) == secret


def test_too_few_shares_fit_every_secret() -> None:
    # With one share missing, for any claimed secret there is a value of the missing share that explains it.
    shares = split(new_secret(), [0, 1, 2], 3)
    for claimed in (0, 1, 2**200):
        # At x = 0 with points 1, 2, 3 the weights are 3, -3, 1.
        a, b = (int.from_bytes(shares[j], "big") for j in (0, 1))
        missing = (claimed - 3 * a + 3 * b) % PRIME
        opened = join({**shares, 2: missing.to_bytes(32, "big")}, 3)
        assert int.from_bytes(opened, "big") == claimed


def test_fixed_vector() -> None:
    # Coefficients 5 x^2 + 7 x + secret, evaluated by hand at x = 1, 2, 3, 11.
    draws = iter([5, 7])
    secret = (10**30).to_bytes(32, "big")
    shares = split(secret, [0, 1, 2, 10], 3, lambda size: next(draws).to_bytes(size, "big"))
    values = {j: int.from_bytes(share, "big") - 10**30 for j, share in shares.items()}
    assert values == {0: 12, 1: 34, 2: 66, 10: 682}


def test_wrap_around_the_prime() -> None:
    draws = iter([PRIME - 1])
    shares = split((1).to_bytes(32, "big"), [0, 1], 2, lambda size: next(draws).to_bytes(size, "big"))
    assert int.from_bytes(shares[0], "big") == 0
    assert int.from_bytes(shares[1], "big") == PRIME - 1
    assert join(shares, 2) == (1).to_bytes(32, "big")


@pytest.mark.parametrize(("holders", "threshold"), [([0, 1], 3), ([0, 0], 1), ([0, 1], 0), ([-1, 0], 1)])
def test_impossible_sharing_is_refused(holders: list[int], threshold: int) -> None:
    with pytest.raises(ProtocolError, match="cannot be shared"):
        split(new_secret(), holders, threshold)


def test_too_few_or_malformed_shares_are_refused() -> None:
    shares = split(new_secret(), [0, 1, 2], 2)
    with pytest.raises(ProtocolError, match="cannot open"):
        join({0: shares[0]}, 2)
    with pytest.raises(ProtocolError, match="not an element"):
        join({0: shares[0], 1: b"\xff" * 32}, 2)
