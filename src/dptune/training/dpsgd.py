"""The DP-SGD loop: what every engine does exactly as the accountant assumes.

Poisson batches at the stated rate, a fixed number of steps, clipped sums, noise on every coordinate, and a
public denominator. An empty batch is a step with noise only. Sizes of batches and of the data set appear in
nothing that the loop returns; the randomness of a run is a function of its key and the step. The file is long because
settings and loop stand together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dptune import _validate
from dptune._progress import listener
from dptune._typing import Floats, Indices
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training._engine import CLIP_NORMS, Engine, ReleasesModules, SumsOnLattice
from dptune.training._layers import on_lines
from dptune.training.benchmark_data import Dataset
from dptune.training.clipping import Clipping, Flat, Quantile, named_clipping
from dptune.training.noise import FastNoise, Noise, NoiseStack, SecureNoise
from dptune.training.optimizers import Constant, KnowsNoise, Optimizer, Schedule, Sgd, Update
from dptune.training.ruled_sums import Following, FollowsRule, RuledSums, follows_itself
from dptune.training.sampling import PoissonSampler
from dptune.training.unit_sums import UnitSums
from dptune.units import UnitDataset

__all__ = ["CLIP_NORMS", "Engine", "ReleasesModules", "Settings", "SumsOnLattice", "descend"]


# Below this, sums on the lattice of secure noise would leave the whole numbers that are exact.
_LEAST_SECURE = 2.0**-10
# How much of the clip norm the lattice of secure noise must leave.
_LEAST_LEFT = 2.0**-10


@dataclass(frozen=True)
class Settings:
    """Everything public about one DP-SGD run.

    A ``noise_multiplier`` of zero trains without privacy; it has no cost and is meant for shards whose scores alone are
    used by a low-sensitivity method.

    Args:
        sampling_rate: The probability with which each record is in a batch, in (0, 1].
        noise_multiplier: The deviation of the noise in units of ``clip_norm``.
        steps: How many steps are taken.
        clip_norm: The norm to which each record's gradient is scaled down.
        learning_rate: The factor on the noised average gradient.
        batch_size: The public denominator of that average, not a property of the data.
        optimizer: What is done with the noised gradients.
        schedule: A public factor on the learning rate.
        secure: Whether sums are exact and noise is drawn on a lattice from a cryptographic stream.
        clipping: How gradients become shares that are no longer than ``clip_norm``: "flat", "automatic", "quantile",
            "per_layer", or a rule with figures of your own (:mod:`dptune.training.clipping`). All cost the same; any
            but "flat" computes in double precision, unless a compiled engine (for networks, for softmax regressions)
            follows it by itself.

    Raises:
        InvalidInput: If a figure is out of range.

    Example:
        >>> from dptune.training import Settings
        >>> settings = Settings.from_batch(
        ...     256, records=60000, noise_multiplier=1.1, steps=2344, clip_norm=1.0, learning_rate=0.5
        ... )
        >>> round(settings.sampling_rate, 6)
        0.004267
    """

    sampling_rate: float
    noise_multiplier: float
    steps: int
    clip_norm: float
    learning_rate: float
    batch_size: float
    optimizer: Optimizer = field(default_factory=Sgd)
    schedule: Schedule = field(default_factory=Constant)
    secure: bool = False
    clipping: Clipping | str = field(default_factory=Flat)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clipping", named_clipping(self.clipping))
        _validate.real("sampling_rate", self.sampling_rate, 0.0, 1.0, low_open=True)
        _validate.real("noise_multiplier", self.noise_multiplier, 0.0)
        _validate.integer("steps", self.steps, 1)
        why = "Gradients are scaled down to it, so zero would remove them."
        _validate.real("clip_norm", self.clip_norm, 0.0, low_open=True, hint=why)
        least, most = CLIP_NORMS
        if not least <= self.clip_norm <= most:
            raise InvalidInput(
                f"'clip_norm' is {self.clip_norm:g}, where squares of gradients vanish or overflow and clipping would "
                f"bound nothing. Use a 'clip_norm' between {least:g} and {most:g}; scale the features."
            )
        _validate.real("learning_rate", self.learning_rate, 0.0, low_open=True)
        _validate.real("batch_size", self.batch_size, 0.0, low_open=True)
        _validate.flag("secure", self.secure)
        if not callable(getattr(self.optimizer, "start", None)):
            raise InvalidInput(
                f"'optimizer' must be one such as Adam(), and a job says it in [model]; got "
                f"{_validate.shown(self.optimizer)}."
            )
        if not callable(getattr(self.schedule, "factor", None)):
            raise InvalidInput(
                f"'schedule' must be one such as Constant(), and a job says it in [model]; got "
                f"{_validate.shown(self.schedule)}."
            )
        if isinstance(self.clipping, Quantile) and isinstance(self.optimizer, KnowsNoise):
            raise InvalidInput(
                f"{type(self.optimizer).__name__} must know the size of the noise, which quantile clipping changes at "
                "every step. Use Adam, or clipping='automatic'."
            )

    @property
    def rule(self) -> Clipping:
        """The clipping rule."""
        return named_clipping(self.clipping)

    @property
    def double(self) -> bool:
        """Whether gradients must be computed in double precision, by engines that do not follow the rule themselves."""
        return self.secure or not isinstance(self.rule, Flat)

    @classmethod
    def from_batch(cls, batch_size: float, records: int, **others: Any) -> Settings:
        """Settings whose rate is ``batch_size / records`` for a public number of records.

        Args:
            batch_size: The expected size of a batch, and the denominator.
            records: The public number of records.
            **others: The other fields.

        Returns:
            The settings.

        Raises:
            InvalidInput: If the batch would be larger than the data.
        """
        _validate.integer("records", records, 1)
        _validate.real("batch_size", batch_size, 0.0, low_open=True)
        if batch_size > records:
            raise InvalidInput(
                f"'batch_size' is {batch_size:g} but there are only {records} records, so the sampling "
                "rate would exceed 1. Use a batch size of at most the number of records."
            )
        return cls(sampling_rate=batch_size / records, batch_size=batch_size, **others)


def descend(
    engine: Engine,
    data: Dataset | UnitDataset,
    settings: Sequence[Settings],
    keys: Sequence[Randomness],
    start: Sequence[Floats] | None = None,
    parts: Sequence[Indices] | None = None,
) -> list[Floats]:
    """Train one candidate for each pair of settings and key by DP-SGD.

    The candidates share the number of steps, the optimiser, the schedule and ``secure``; everything else may differ.
    Where records are units of several rows, batches are drawn and gradients clipped by unit.

    Args:
        engine: What computes clipped sums, of the model to train; in double precision where records are units.
        data: The private records.
        settings: One run for each candidate.
        keys: The randomness of each candidate; all different.
        start: Parameters to continue from (warm start); the engine's own first ones if left out.
        parts: The places of each candidate's own records, as if it had been given ``data.take(part)``.

    Returns:
        The trained parameters of each candidate as one flat vector.

    Raises:
        InvalidInput: If keys repeat, the candidates cannot be stacked, or lengths do not fit.

    Example:
        >>> import numpy as np
        >>> from dptune.randomness import Randomness
        >>> from dptune.training import Dataset, Settings, descend, engine_for, softmax
        >>> data = Dataset(np.repeat([[1.0], [-1.0]], 50, axis=0), np.repeat([1, 0], 50), classes=2)
        >>> settings = Settings(0.2, 1.0, steps=30, clip_norm=1.0, learning_rate=1.0, batch_size=20)
        >>> (flat,) = descend(engine_for(softmax(1, 2)), data, [settings], [Randomness.rehearsal(0)])
        >>> flat.shape, bool(flat[1] > flat[0])
        ((4,), True)
    """
    _check(engine, settings, keys, start)
    if parts is not None and len(parts) != len(keys):
        raise InvalidInput(
            f"Every candidate needs its own part of the records, if 'parts' are given; got {len(parts)}."
        )
    first, *_ = settings
    dimension, engine = engine.dimension, _bound(engine, data, first.rule)
    starts = [engine.start(key) for key in keys] if start is None else _dressed(engine, start)
    own = [None] * len(keys) if parts is None else parts
    runs = [_Run(*one) for one in zip(settings, keys, starts, own, strict=True)]
    groups = [runs[i : i + engine.together] for i in range(0, len(runs), engine.together)]
    return [flat[:dimension] for group in groups for flat in _descend(engine, len(data), group)]


def _dressed(engine: Engine, start: Sequence[Floats]) -> list[Floats]:
    """Parameters to continue from, as the engine has them."""
    return [engine.dressed(one) if isinstance(engine, FollowsRule) else np.array(one) for one in start]


def _bound(engine: Engine, data: Dataset | UnitDataset, rule: Clipping) -> Engine:
    """An engine whose records are those of the data, be they rows or units of several rows, clipped by a rule."""
    if isinstance(engine, FollowsRule):
        if engine.rule != rule:
            raise InvalidInput(f"The engine clips by {engine.rule!r} but the settings say {rule!r}. Use one rule.")
        engine.bind(data)  # type: ignore[arg-type]  # one that follows a rule takes units too
        return engine
    if not isinstance(rule, Flat):
        by_rule = RuledSums(engine, rule)
        by_rule.bind(data)
        return by_rule
    if isinstance(data, UnitDataset):
        by_unit = UnitSums(engine)
        by_unit.bind(data)
        return by_unit
    engine.bind(data)
    return engine


@dataclass(frozen=True)
class _Run:
    """One candidate: its settings, key and first parameters, and the records that are its own (None: all)."""

    settings: Settings
    key: Randomness
    start: Floats
    part: Indices | None


def fits_lattice(settings: Settings, dimension: int) -> bool:
    """Whether noise on a lattice suits a run whose sums are in doubles: their low bits would tell records apart.

    Args:
        settings: the run.
        dimension: how many parameters there are.

    Returns:
        False without noise, or with so little or so much of it that the lattice does not fit: public figures.

    Example:
        >>> settings = Settings(0.1, 1.1, steps=10, clip_norm=1.0, learning_rate=1.0, batch_size=10.0)
        >>> fits_lattice(settings, 1000)
        True
    """
    scale = settings.noise_multiplier * settings.clip_norm
    taken = SecureNoise.margin_of(dimension, scale, settings.clip_norm)
    return settings.noise_multiplier >= _LEAST_SECURE and taken <= (1.0 - _LEAST_LEFT) * settings.clip_norm


def _descend(engine: Engine, records: int, runs: Sequence[_Run]) -> list[Floats]:
    """Train candidates step by step, all of them at once."""
    settings = [run.settings for run in runs]
    first, *_ = settings
    parameters = on_lines((len(runs), engine.dimension), engine.dtype)
    parameters[:] = [run.start for run in runs]
    on_lattice = first.secure or (
        engine.dtype is np.float64 and all(fits_lattice(s, engine.dimension) for s in settings)
    )
    noises: list[Noise] = [(SecureNoise if on_lattice else FastNoise)(run.key, engine.dimension) for run in runs]
    sizes = [records if run.part is None else len(run.part) for run in runs]
    samplers = [
        PoissonSampler(run.key, size, run.settings.sampling_rate, first.steps)
        for run, size in zip(runs, sizes, strict=True)
    ]
    scales = [s.noise_multiplier * s.clip_norm for s in settings]
    clips = np.array(
        [
            s.clip_norm - noise.margin(engine.dimension, scale, s.clip_norm)
            for s, noise, scale in zip(settings, noises, scales, strict=True)
        ]
    )
    if any(clip < _LEAST_LEFT * s.clip_norm for clip, s in zip(clips, settings, strict=True)):
        raise InvalidInput("The noise lattice is wider than the clip norm. Lower 'noise_multiplier' or use fast noise.")
    lattices = [SecureNoise.lattice(scale) for scale in scales]
    rates = np.array([[s.learning_rate] for s in settings])
    update = _update(settings, scales, parameters)
    gradient = on_lines(parameters.shape, engine.dtype)
    exact = engine.lattice_sums if first.secure and isinstance(engine, SumsOnLattice) else None
    stack = NoiseStack(noises, scales, [1.0 / s.batch_size for s in settings])
    factor, rate = 1.0, rates.astype(engine.dtype)
    tell = listener()  # in a rehearsal alone
    with np.errstate(all="ignore"):  # a diverging candidate is an outcome, not an error
        for step in range(first.steps):
            if tell is not None:
                tell(step, first.steps)
            drawn = [sampler.batch(step) for sampler in samplers]
            batches = [b if run.part is None else run.part[b] for run, b in zip(runs, drawn, strict=True)]
            if exact is None or not exact(parameters, batches, clips, lattices, gradient):
                engine.clipped_sums(parameters, batches, clips, gradient)
            stack.add(gradient, step)
            if factor != (factor := first.schedule.factor(step, first.steps)):
                rate = (rates * factor).astype(engine.dtype)
            update(parameters, gradient, rate)
    return list(parameters)


def _update(settings: Sequence[Settings], scales: Sequence[float], parameters: Floats) -> Update:
    """What is done with noised averages: the optimiser's rule, and the clip norm's where it follows a quantile."""
    first, *_ = settings
    optimizer, rule = first.optimizer, first.rule
    if isinstance(rule, Quantile):
        optimizer = Following(optimizer, rule, tuple(s.clip_norm for s in settings))
    if isinstance(optimizer, KnowsNoise):
        deviations = [[scale / s.batch_size] for scale, s in zip(scales, settings, strict=True)]
        return optimizer.start_knowing(parameters, np.array(deviations, parameters.dtype))
    return optimizer.start(parameters)


def check_keys(keys: Sequence[Randomness]) -> None:
    """Refuse candidates that would draw the same noise.

    Args:
        keys: the randomness of each.

    Raises:
        InvalidInput: Two are the same.

    Example:
        >>> check_keys([Randomness.rehearsal(1), Randomness.rehearsal(2)])
    """
    if len({key.secret() for key in keys}) != len(keys):
        raise InvalidInput("Two candidates share a run key, so their noise would not be independent. Use fresh keys.")


def _check(
    engine: Engine, settings: Sequence[Settings], keys: Sequence[Randomness], start: Sequence[Floats] | None
) -> None:
    if not settings or len(settings) != len(keys):
        raise InvalidInput(f"Every candidate needs its own key; got {len(settings)} settings and {len(keys)} keys.")
    check_keys(keys)
    shared = [(s.steps, s.optimizer, s.schedule, s.secure, s.clipping) for s in settings]
    if any(other != shared[0] for other in shared):
        raise InvalidInput(
            "Stacked candidates must share steps, optimizer, schedule, secure and clipping. Train them apart."
        )
    if any(s.secure and 0.0 < s.noise_multiplier < _LEAST_SECURE for s in settings):
        raise InvalidInput(f"Secure noise needs a 'noise_multiplier' of at least {_LEAST_SECURE:g} (or none at all).")
    if any(s.secure for s in settings) and engine.dtype is not np.float64:
        raise InvalidInput("Secure noise needs an engine in double precision. Build it with double=True.")
    precise = any(s.double and not follows_itself(engine, s.rule) for s in settings)
    if precise and not isinstance(engine, FollowsRule) and engine.dtype is not np.float64:
        raise InvalidInput("This clipping rule needs an engine in double precision. Build it with double=True.")
    for vector in start or ():
        if vector.shape != (engine.dimension,):
            raise InvalidInput(f"A warm start needs {engine.dimension} parameters; got {vector.shape}.")
    if start is not None and len(start) != len(keys):
        raise InvalidInput(
            f"A warm start needs one vector of parameters for each candidate; got {len(start)} for {len(keys)}."
        )
