"""DP-SGD as a trainer: its cost follows from (rate, noise, steps), its score from public or paid-for records.

One object serves random stopping, subset tuning (warm starts), thresholds (shards) and votes (clients): they
differ in the records they pass. The score is accuracy (or what ``score`` says) on ``validation``, which the caller
declares public, or a noised count on a private holdout whose cost is part of the declared one; an unnoised score on
private records does not exist. With neither, a training has no score of its own (methods then hold back private
records).
The file is long because the trainer's contract is written at every method of it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from dptune import _validate
from dptune._global_state import plain_torch
from dptune._typing import Floats, Indices
from dptune.accounting import Cost, DpSgd, Gaussian, parallel
from dptune.data import Dataset, flat_rows
from dptune.errors import InvalidInput
from dptune.judging import correct, is_module
from dptune.randomness import Randomness, Rng, as_randomness
from dptune.regression import range_of
from dptune.scores import AbsoluteError, Accuracy, Auc, Score, check_score, natural_score
from dptune.trainer import Fitted, Params
from dptune.training.dpsgd import Engine, ReleasesModules, Settings, check_keys, descend
from dptune.training.engines import engine_for
from dptune.training.features import check_features
from dptune.training.holdout import Holdout
from dptune.training.lens import CentredLens, Lens
from dptune.training.models import Cnn, Mlp, Regression
from dptune.training.noise import generator_of
from dptune.training.trained_model import Trained, parameters_of
from dptune.training.trained_regression import trained as as_model
from dptune.training.whitening import Whitening, through
from dptune.units import UnitDataset

__all__ = ["DpSgdTrainer"]


_ALIASES = {"lr": "learning_rate", "clip": "clip_norm"}
_FIELDS = {field.name for field in dataclasses.fields(Settings)} - {"secure"}
_MOST_STACKED = 16
_SMALL = 2**15  # parameters of models whose steps are so short that a stack may gain something


_TYPES: dict[str, tuple[type, ...]] = {
    "settings": (Settings,),
    "validation": (Dataset, UnitDataset, type(None)),
    "holdout": (Holdout, type(None)),
    "engine": (str,),
    "whitening": (Whitening, type(None)),
}


@dataclass(frozen=True)
class DpSgdTrainer:
    """Trains a model by DP-SGD; tuned parameters override fields of the settings (``lr`` and ``clip`` for short).

    At most one of ``validation`` and ``holdout`` is given. Without both every score is 0, for final trainings and for
    methods that are given ``validation=PrivateValidation(...)``.

    Args:
        model: A description (``softmax``, ``Mlp``, ``Cnn``), or a function of the parameters that returns a
            ``torch.nn.Module``, for every run a new one.
        settings: The run where parameters say nothing else.
        validation: Records that the caller declares public; the score is that on them.
        holdout: Private validation; its noised score is part of the cost.
        engine: Which engine computes gradients: "auto", "numpy", "torch", "fused" or "network" (docs/engine.md).
        score: How models are compared, on public and on private records (:mod:`dptune.scores`); None: by accuracy,
            and regressions by their absolute error.
        prepared: The name of the public features that the records were given before; a released built-in model carries
            it and takes rows as they were.
        threads: How many threads share a batch where the "network" engine computes, or the pass for wide regressions;
            the model does not depend on it. None: one, and as many as there are workers for the final training of a
            sealed run.
        whitening: Whether noised second moments of the records are taken first, to bring down directions in which all
            of them stand out; for softmax regressions and MLPs (docs/training.md). It is part of the cost.

    Raises:
        InvalidInput: If both ``validation`` and ``holdout`` are given, or ``model`` is a module itself.

    Example:
        >>> import numpy as np
        >>> from dptune.randomness import Randomness
        >>> from dptune.training import Dataset, DpSgdTrainer, Settings, softmax
        >>> x = np.repeat([[1.0], [-1.0]], 50, axis=0)
        >>> data = Dataset(x, np.repeat([1, 0], 50), classes=2)
        >>> settings = Settings.from_batch(
        ...     20, records=100, noise_multiplier=1.0, steps=30, clip_norm=1.0, learning_rate=1.0
        ... )
        >>> trainer = DpSgdTrainer(softmax(1, 2), settings)
        >>> round(trainer.cost({}).epsilon(1e-5), 2)
        7.93
        >>> fitted = trainer.fit({"lr": 2.0}, data, Randomness.rehearsal(0))
        >>> fitted.model.accuracy(data)
        1.0
    """

    model: Mlp | Cnn | Callable[[Params], Any]
    settings: Settings
    validation: Dataset | None = None
    holdout: Holdout | None = None
    engine: str = "auto"
    score: Score | None = None
    prepared: str = "none"
    threads: int | None = None
    whitening: Whitening | None = None

    def __post_init__(self) -> None:
        check_features(self.prepared)
        if self.threads is not None:
            _validate.integer("threads", self.threads, 1)
        for name, kind in _TYPES.items():
            if not isinstance(value := getattr(self, name), kind):
                wanted = " or ".join(one.__name__ for one in kind if one not in (UnitDataset, type(None)))
                raise InvalidInput(f"'{name}' must be a {wanted}; got {_validate.shown(value)}.")
        if self.validation is not None and self.holdout is not None:
            raise InvalidInput(
                "Give either 'validation' (a data set you declare public) or 'holdout' (private records, "
                "whose score is noised and charged), not both: a run has one score."
            )
        if self.score is not None and not isinstance(self.score, Score):
            raise InvalidInput(f"'score' must be a score such as Balanced(shares=...); got {self.score!r:.80}.")
        if isinstance(self.validation, UnitDataset):
            raise InvalidInput("'validation' is public, so each row is judged for itself; give the units' '.rows'.")
        if not isinstance(self.model, Mlp | Cnn) and (is_module(self.model) or not callable(self.model)):
            raise InvalidInput(
                f"'model' must be a description (softmax, Mlp, Cnn, Regression) or a function of the parameters that "
                f"makes a torch module; got {type(self.model).__name__}. For a module write model=lambda params: ..., "
                "so that every run begins with one of its own."
            )
        if self.whitening is not None and not isinstance(self.model, Mlp):
            raise InvalidInput("'whitening' is for softmax and linear regressions and MLPs; leave it out for networks.")

    @property
    def noise_generator(self) -> str:
        """Which generator draws the noise here: another one draws other noise from the same key."""
        return generator_of(self.settings.secure)

    @property
    def module_factory(self) -> Callable[[Params], Any] | None:
        """What makes the modules, where the model is a function of the parameters."""
        return None if isinstance(self.model, Mlp | Cnn) else self.model

    @property
    def honours_units(self) -> bool:
        """Units of several rows are one record each: drawn together, and clipped as a whole."""
        return True

    @property
    def declared_score(self) -> Score | None:
        """How models are compared; for regressions always said, so that statements say it."""
        numbers = isinstance(self.model, Regression) or range_of(self.validation) is not None
        return AbsoluteError() if self.score is None and numbers else self.score

    @property
    def declared_records(self) -> int:
        """About how many records there are: the denominator over the sampling rate, both public."""
        return max(1, round(self.settings.batch_size / self.settings.sampling_rate))

    @property
    def declared_batch(self) -> float:
        """The denominator of gradients when all records are trained on."""
        return self.settings.batch_size

    @property
    def declared_training(self) -> str:
        """How a run trains where its parameters say nothing else: for statements."""
        one = self.settings
        said = f"DP-SGD; {one.rule.describe(one.clip_norm)}; optimiser {one.optimizer!r}; schedule {one.schedule!r}"
        return said if self.whitening is None else f"{said}; {self.whitening.describe()}"

    @property
    def transfer_rule(self) -> Literal["sgd", "whitened", "none"]:
        """Adam divides by the size of its gradients, so its learning rate does not grow with the records.

        The second moments of a part are noisier, so a part is hardly whitened, and plain records go a longer way.
        """
        if "adam" in type(self.settings.optimizer).__name__.lower():
            return "none"
        return "sgd" if self.whitening is None else "whitened"

    def resolve(self, params: Params) -> Settings:
        """The settings of one run."""
        named = {_ALIASES.get(name, name): value for name, value in params.items()}
        free = {} if isinstance(self.model, Mlp | Cnn) else {k: v for k, v in named.items() if k not in _FIELDS}
        unknown = sorted(set(named) - _FIELDS - set(free))
        if unknown:
            known = ", ".join(sorted(_FIELDS | set(_ALIASES)))
            raise InvalidInput(f"DP-SGD has no parameter {unknown[0]!r}; it knows {known}.")
        return dataclasses.replace(self.settings, **{k: v for k, v in named.items() if k not in free})

    def cost(self, params: Params) -> Cost:
        """The cost of one run: DP-SGD for a training record, a Gaussian count for a held-out one."""
        settings = self.resolve(params)
        if settings.noise_multiplier == 0.0:
            raise InvalidInput("Training without noise has no finite cost. Set 'noise_multiplier' above zero.")
        base: Cost = DpSgd(
            sampling_rate=settings.sampling_rate,
            noise_multiplier=settings.noise_multiplier,
            steps=settings.steps,
        )
        if self.whitening is not None:
            base = self.whitening.cost(settings)
        if self.holdout is None:
            return base
        return parallel(base, Gaussian(self.holdout.noise_multiplier))

    @plain_torch()
    def check(self, params: Params, data: object) -> None:
        """Raise if the model cannot be trained on records of this kind; looks at no record, only at their shape.

        Args:
            params: The parameters of a run.
            data: The records; only types and shapes are looked at.

        Raises:
            InvalidInput: If a parameter is unknown, or model, records and public validation do not fit together.
        """
        settings = self.resolve(params)
        model = self.model if isinstance(self.model, Mlp | Cnn) else _make(self.model, params, Randomness.fresh())
        engine = self._engine(model, [settings], data)
        if not isinstance(data, Dataset | UnitDataset):
            raise InvalidInput(
                f"DP-SGD trains on a dptune Dataset; got {type(data).__name__}. Make one of arrays: "
                "dptune.Dataset(x, y, classes=...), with the number of classes that is public."
            )
        shape = data.rows.shape if isinstance(data, UnitDataset) else data.shape
        if self.validation is not None and self.validation.shape != shape:
            raise InvalidInput(
                f"Records have {_said(shape)} features but those of 'validation' {_said(self.validation.shape)}. "
                "Prepare both in the same way."
            )
        if self.validation is not None and range_of(self.validation) != range_of(data):
            raise InvalidInput(
                f"Targets are declared in {range_of(data)} but those of 'validation' in {range_of(self.validation)}. "
                "Declare the same range for both (None: classes)."
            )
        blank = data.blank() if isinstance(data, UnitDataset) else _blank(data)
        if self.whitening is not None:
            self.whitening.lens(blank, settings, Randomness.fresh())
        descend(engine, blank, [dataclasses.replace(settings, steps=1, sampling_rate=1.0)], [Randomness.fresh()])
        check_score(self.declared_score, data)

    def fit(self, params: Params, data: Dataset | UnitDataset, rng: Rng, *, start: Floats | None = None) -> Fitted[Any]:
        """Train once and score.

        Args:
            params: Overrides of the settings, for example ``{"lr": 0.5, "clip": 1.0}``.
            data: The private records.
            rng: Where the run's batches, noise and first weights come from.
            start: Parameters to begin from, in the engine's order; the model's own first ones if left out.

        Returns:
            The model and its score.
        """
        starts = None if start is None else [start]
        return self.fit_many([params], data, [rng], starts=starts)[0]

    def fit_from(self, params: Params, data: Dataset | UnitDataset, rng: Rng, start: Any) -> Fitted[Any]:
        """Train once from a model that an earlier run returned (warm start).

        Args:
            params: Overrides of the settings.
            data: The private records.
            rng: Where the run's batches and noise come from.
            start: The earlier run's model.

        Returns:
            The model and its score.

        Raises:
            InvalidInput: If ``start`` is not a model of a DP-SGD run.
        """
        if not isinstance(start, Trained):
            return self.fit(params, data, rng, start=parameters_of(start))
        return self.fit_many([params], data, [rng], starts=[start])[0]

    @plain_torch()
    def fit_many(
        self,
        params: Sequence[Params],
        data: Dataset | UnitDataset,
        rngs: Sequence[Rng],
        *,
        starts: Sequence[Floats | Trained[Any]] | None = None,
    ) -> list[Fitted[Any]]:
        """Train several candidates, stacking those of equal shape where the engine can.

        Args:
            params: The parameters of each candidate.
            data: The private records, the same for all.
            rngs: Randomness for each candidate of its own.
            starts: Parameters, or an earlier model, to begin from, for each candidate; the model's own first ones if
                left out.

        Returns:
            A model and a score for each candidate, the same as if each had been trained alone up to rounding.

        Raises:
            InvalidInput: If there are not as many ``rngs`` (and ``starts``) as ``params``.
        """
        if len(params) != len(rngs) or (starts is not None and len(starts) != len(params)):
            raise InvalidInput("Every candidate needs its own rng (and its own start, if starts are given).")
        keys = [as_randomness(rng) for rng in rngs]
        check_keys(keys)
        resolved = [self.resolve(one) for one in params]
        outcome: list[Fitted[Any] | None] = [None] * len(params)
        for group in self._groups(resolved):
            begin = None if starts is None else [starts[i] for i in group]
            chosen = ([params[i] for i in group], [resolved[i] for i in group], [keys[i] for i in group])
            for place, fitted in zip(group, self._fit_group(*chosen, data, begin), strict=True):
                outcome[place] = fitted
        return [fitted for fitted in outcome if fitted is not None]

    def shape(self, params: Params) -> Hashable | None:
        """What candidates must share to be worth a stack; None for those that are to be trained alone.

        Large models are as fast alone, and so are those of the compiled pass. Secure noise is for those who mind the
        last bits, so nothing of a secure run is left to its company.
        """
        settings = self.resolve(params)
        if settings.double or not isinstance(self.model, Mlp) or not self._stackable or self.model.dimension >= _SMALL:
            return None
        return _shape(settings) if engine_for(self.model, engine=self.engine).together > 1 else None

    @property
    def _stackable(self) -> bool:
        """Whitened records are others for every candidate."""
        return isinstance(self.model, Mlp) and self.engine in {"auto", "numpy"} and self.whitening is None

    def _groups(self, settings: Sequence[Settings]) -> list[list[int]]:
        stackable = self._stackable
        groups: list[tuple[object, list[int]]] = []
        for place, one in enumerate(settings):
            shape = _shape(one)
            for other, members in groups:
                if stackable and other == shape and len(members) < _MOST_STACKED:
                    members.append(place)
                    break
            else:
                groups.append((shape, [place]))
        return [members for _, members in groups]

    def with_threads(self, threads: int) -> DpSgdTrainer:
        """The same trainer with several threads, unless its user said how many.

        Args:
            threads: How many may share a batch.

        Returns:
            A trainer of the same models.
        """
        if self.threads is not None:
            return self
        made = copy.copy(self)  # also of a class of somebody's own, whatever its constructor takes
        object.__setattr__(made, "threads", _validate.integer("threads", threads, 1))
        return made

    def _fit_group(
        self,
        params: Sequence[Params],
        settings: Sequence[Settings],
        keys: Sequence[Randomness],
        data: Dataset | UnitDataset,
        starts: Sequence[Floats | Trained[Any]] | None,
    ) -> list[Fitted[Any]]:
        model = self.model if isinstance(self.model, Mlp | Cnn) else _make(self.model, params[0], keys[0])
        engine = self._engine(model, settings, data)
        held: list[Indices | None] = [None] * len(keys)
        parts: list[Indices] | None = None
        if self.holdout is not None:  # every candidate tosses its own coins
            places = [self.holdout.places(len(data), key) for key in keys]
            parts, held = [kept for kept, _ in places], [rest for _, rest in places]
        seen, lens = data, None
        if self.whitening is not None:
            ((one,), (key,)), (part,) = (settings, keys), parts or (None,)  # a group of one
            lens = self.whitening.lens(data, one, key, part)
            seen = through(data, lens)
        begun = [parameters_of(one, lens) if isinstance(one, Trained) else one for one in starts or ()] or None
        trained = descend(engine, seen, settings, keys, begun, parts)
        return [
            Fitted(self._wrap(engine, flat, data, lens), self._score(engine, flat, lens, data, rest, key))
            for flat, rest, key in zip(trained, held, keys, strict=True)
        ]

    def _engine(self, model: Any, settings: Sequence[Settings], data: object) -> Engine:
        """What computes the sums of these runs, which share their clipping rule."""
        units = isinstance(data, UnitDataset)  # their rows' gradients are summed before they are clipped
        first, *_ = settings
        return engine_for(
            model,
            double=units or all(one.secure for one in settings),
            engine=self.engine,
            threads=self.threads or 1,
            rule=first.rule,
            numbers=range_of(data) is not None,
        )

    def _wrap(self, engine: Engine, flat: Floats, data: object, lens: Lens | CentredLens | None) -> Any:
        """What is released; of modules that predict numbers, one that gives them in the declared range."""
        if isinstance(self.model, Mlp | Cnn):
            return as_model(self.model, flat, self.engine, self.prepared, lens)
        assert isinstance(engine, ReleasesModules)  # no other engine takes modules
        module, ends = engine.release(flat), range_of(data)
        if ends is None:
            return module
        from dptune.training.torch_models import in_range  # noqa: PLC0415 - optional dependency

        return in_range(module, ends)

    def _score(
        self,
        engine: Engine,
        flat: Floats,
        lens: Lens | CentredLens | None,
        data: Dataset | UnitDataset,
        held: Indices | None,
        key: Randomness,
    ) -> float:
        if held is not None and self.holdout is not None:  # private records: none may decide another's verdict
            drawn, number = self.holdout.groups(len(data), key)
            model, score = self._wrap(engine, flat, data, lens), self.declared_score
            count = correct(model, data.take(held), score, groups=drawn[held], number=number)
            return self.holdout.score(int(count), key)
        if self.validation is None:
            return 0.0
        records, score = self.validation, self.declared_score or natural_score(self.validation)
        if not isinstance(score, Accuracy):
            denominator = 2.0 if isinstance(score, Auc) else score.denominator(len(records))
            return float(correct(self._wrap(engine, flat, data, lens), records, score) / Fraction(denominator))
        if not len(records):
            return 0.0
        with np.errstate(all="ignore"):
            outputs = engine.logits(flat, records.x if lens is None else lens(flat_rows(records.x)))
        return int(np.sum(np.argmax(outputs, axis=1) == records.y)) / len(records)


def _blank(data: Dataset) -> Dataset:
    """Made-up records with every class: a model with fewer outputs fails on them."""
    count = max(2, data.classes)
    return data.holding(np.zeros((count, *data.x.shape[1:]), np.float32), data.blank_targets(count))


def _said(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _shape(settings: Settings) -> Hashable:
    return settings.steps, settings.optimizer, settings.schedule, settings.secure, settings.clipping


def _make(factory: Callable[[Params], Any], params: Params, key: Randomness) -> Any:
    """The caller's module; weights that it draws from torch's generator become a function of the run."""
    import torch  # noqa: PLC0415 - optional dependency

    with plain_torch(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(key.child("module").secret()[:7], "little"))
        return factory(params)
