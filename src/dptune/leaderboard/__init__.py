"""The leaderboard: tuning methods and their rivals at the same total, on public benchmarks (docs/leaderboard.md)."""

from dptune.leaderboard.entrants import ENTRANTS, Entrant
from dptune.leaderboard.races import Protocol, Race, race
from dptune.leaderboard.standings import Standing, standings

__all__ = ["ENTRANTS", "Entrant", "Protocol", "Race", "Standing", "race", "standings"]
