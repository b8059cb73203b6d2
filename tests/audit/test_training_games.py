"""NTNV and NTCV on digits: the canary is seen, the account is not exceeded, an interrupted audit goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dptune.accounting import DpSgd, Geometric
from dptune.audit import Game
from dptune.audit.training_games import play_training, workshop
from dptune.errors import InvalidInput
from dptune.training import RunKey


def _game(name: str, games: int, base: DpSgd) -> Game:
    return Game(name, base, Geometric(2), 1e-5, games)


@pytest.mark.parametrize("name", ["ntnv", "ntcv"])
def test_the_canary_is_seen_but_the_account_holds(name: str) -> None:
    # Little noise: the attacker must succeed. A bound above the account would have probability below 0.05; seeded.
    game = _game(name, 200, DpSgd(0.5, 0.6, 4))
    found = play_training(game, key=RunKey.rehearsal(3))
    assert 0.5 < found.bound.low < found.upper


def test_an_interrupted_audit_goes_on(tmp_path: Path) -> None:
    game, path = _game("ntcv", 100, DpSgd(0.5, 0.6, 2)), tmp_path / "games.jsonl"
    whole = play_training(game, state=path)
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    path.write_text("\n".join([*lines[:2], lines[2][:40]]))  # killed while writing the second chunk
    again = play_training(game, state=path)
    assert again.bound == whole.bound
    assert path.read_text().splitlines() == lines


def test_a_file_of_another_game_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "games.jsonl"
    play_training(_game("ntcv", 50, DpSgd(0.5, 0.6, 2)), state=path)
    with pytest.raises(InvalidInput, match="another game"):
        play_training(_game("ntnv", 50, DpSgd(0.5, 0.6, 2)), state=path)
    path.write_text("nothing")
    with pytest.raises(InvalidInput, match="holds no audit"):
        play_training(_game("ntnv", 50, DpSgd(0.5, 0.6, 2)), state=path)


def test_too_few_games_and_unknown_data() -> None:
    with pytest.raises(InvalidInput, match="at least"):
        play_training(_game("ntnv", 4, DpSgd(0.5, 0.6, 2)))
    with pytest.raises(InvalidInput, match="'data'"):
        workshop("faces")


def test_the_canary_stands_alone() -> None:
    shop = workshop("digits")
    direction = shop.direction()
    assert np.linalg.norm(direction) == pytest.approx(1.0)
    assert len(shop.worlds[1]) == len(shop.worlds[0]) + 1
    assert not shop.without.x[:, 0].any()
