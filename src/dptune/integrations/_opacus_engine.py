"""A privacy engine of Opacus whose rate, steps and denominator are the declared ones.

Opacus takes them from the number of records, so that one record more would change the rate, or fail a run. Here the
sampler draws at the declared rate and gives the declared number of batches, no more and no fewer: an empty batch is
handed over as one blank record whose gradient adds nothing, so that what a function counts by batches (a schedule, say)
does not tell whether a batch was empty, which nobody pays for.
Where the number of records is declared, the loader is made here, too, and handed to the training function.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import opacus
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset, default_collate

from dptune.accounting import DpSgd
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.integrations._opacus_probe import Probe
from dptune.integrations._opacus_trainers import batches_in_a_pass
from dptune.integrations._opacus_watch import Watch, check_options, clean, drop_unusable

__all__ = ["DeclaredEngine", "released"]


_INNER = "_module."  # what Opacus puts before the names of a wrapped module's parameters


class _DeclaredBatches(Sampler[list[int]]):
    """Poisson batches: a pass is about one over the rate, and all passes together are the declared steps."""

    def __init__(self, engine: DeclaredEngine, dataset: Any, collate: Any) -> None:
        self._engine, self._dataset, self._collate = engine, dataset, collate
        self._records = len(dataset)
        self.optimizer: Any = None
        self.probe: Probe | None = None
        self.blank = False  # whether the batch that was handed over last is an empty one
        self._size = self._seen = 0  # records of that batch, and their gradients so far

    def take(self, gradients: int) -> None:
        """Gradients of single records are about to be clipped: no more than the batch has records, in all its parts."""
        self._engine.check_drawn()
        self._seen += gradients
        if self._seen > self._size:
            self._refuse()

    def check_whole(self) -> None:
        """At a step on blank records: no fewer gradients, either. On others a refusal would tell what was left out."""
        if self._engine.probing and self._seen < self._size:
            self._refuse()

    def _refuse(self) -> None:
        raise InvalidInput(
            f"The run has gradients of {self._seen} records for a batch of {self._size}: what is clipped are not its "
            "records. Let the first dimension be that of records, one row for each, without copies or records of your "
            "own; or set 'batch_first' of make_private() to what the module does."
        )

    def collated(self, records: Any) -> Any:
        """A batch as the function gets it."""
        return self._blank_batch() if self.blank else self._collate(records)

    def __len__(self) -> int:
        return batches_in_a_pass(float(self._engine.declared.sampling_rate))

    def __iter__(self) -> Iterator[list[int]]:
        if self.optimizer is None:
            raise InvalidInput("Batches are drawn for steps of training: call engine.make_private(...) first.")
        for _ in range(len(self)):
            self._engine.check_steps()
            if self._engine.drawn >= self._engine.declared.steps:
                self._engine.asked_for_more = True
                return
            self._engine.drawn += 1
            self.blank = False
            if self.probe is not None and (tried := self.probe.batch(self._records)) is not None:
                self._size, self._seen = len(tried), 0
                yield tried
                continue
            uniform = torch.rand(self._records, dtype=torch.float64, generator=self._engine.generator)
            batch = (uniform < self._engine.declared.sampling_rate).nonzero().reshape(-1).tolist()
            self._size, self._seen = max(1, len(batch)), 0
            if not batch and self._has_blank():
                self.blank = True
            if batch or self.blank:
                yield batch
            else:
                _step_with_noise_alone(self.optimizer)

    def _has_blank(self) -> bool:
        """Whether there is anything to tell the form of a record by: the type of the data set, or a first record."""
        return isinstance(self._dataset, TensorDataset) or self._records > 0

    def _blank_batch(self) -> Any:
        """A batch of one record that is all zeros."""
        if isinstance(self._dataset, TensorDataset):
            parts = tuple(torch.zeros(one.shape[1:], dtype=one.dtype) for one in self._dataset.tensors)
            return self._collate([parts])
        return _zeros(self._collate([self._dataset[0]]))


def _zeros(batch: Any) -> Any:
    """The same form, with zeros for all numbers: of a record that was not drawn nothing is handed over."""
    if isinstance(batch, torch.Tensor):
        return torch.zeros_like(batch)
    if isinstance(batch, dict):
        return {name: _zeros(one) for name, one in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [_zeros(one) for one in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch if batch is None else type(batch)()


def _step_with_noise_alone(optimizer: Any) -> None:
    """The step of an empty batch, as that of one record whose gradient is zero: every optimizer of Opacus takes it."""
    optimizer.zero_grad()
    for p in optimizer.params:
        p.grad, p.grad_sample = torch.zeros_like(p), torch.zeros((1, *p.shape), dtype=p.dtype)
    optimizer.step()
    optimizer.zero_grad()


class DeclaredEngine(opacus.PrivacyEngine):  # type: ignore[misc] # Opacus is untyped
    """Makes training private at the declared cost; every refusal follows from the code and the declaration alone."""

    def __init__(self, declared: DpSgd, *, batch: float | None = None, clip: float | None = None) -> None:
        super().__init__()
        self.declared = declared
        self._batch, self._clip = batch, clip  # declared, or None
        self.loader: Any = None  # for the training function, where the adapter makes it
        self.drawn = 0  # batches, by all loaders together
        self.asked_for_more = False  # than the declared steps
        self.probing = False  # whether records are blank, and batches may be chosen to see what the function does
        self.generator: torch.Generator | None = None  # of noise and coins
        self._watches: list[Watch] = []
        self._denominator = 1.0

    def __call__(self, *, accountant: str = "prv", secure_mode: bool = False) -> DeclaredEngine:
        """This engine, so that code which makes its own may keep that line: call the function's argument PrivacyEngine.

        Which accountant it asks for decides nothing: the plan accounts.
        """
        if secure_mode:
            raise InvalidInput(
                "'secure_mode=True' asks for a generator of Opacus' own, but the run draws its noise from its own "
                "secret. Leave it out."
            )
        return self

    def load(self, data: Dataset) -> Any:
        """The loader for the training function: Poisson batches of (x, y), a public number of them in a pass."""
        x = torch.from_numpy(np.ascontiguousarray(data.x, dtype=np.float32))
        tensors = TensorDataset(x, torch.from_numpy(data.y))
        self.loader = self._loader(tensors, default_collate)
        return self.loader

    def _loader(self, dataset: Any, collate: Any) -> Any:
        """In this process: workers would draw batches ahead of their steps."""
        batches = _DeclaredBatches(self, dataset, collate)
        return DataLoader(dataset, batch_sampler=batches, collate_fn=batches.collated)

    def make_private(self, *, data_loader: Any, noise_multiplier: float, **others: Any) -> Any:
        """As Opacus does, with the declared rate and steps; gradients are divided by the given loader's batch size."""
        check_options(others)
        if noise_multiplier < self.declared.noise_multiplier * (1 - 1e-9):
            raise InvalidInput(
                f"The run used noise {noise_multiplier:g} but declared {self.declared.noise_multiplier:g}. Train with "
                "the declared noise."
            )
        self._check_clip(others.get("max_grad_norm"))
        self._denominator = self._batch_of(data_loader)
        made = super().make_private(
            data_loader=data_loader, noise_multiplier=noise_multiplier, noise_generator=self.generator, **others
        )
        module, optimizer, loader = made[0], made[1], made[-1]
        batches = loader.batch_sampler
        batches.optimizer = optimizer
        batches.probe = Probe(optimizer) if self.probing and self.declared.steps >= Probe.steps else None
        watch = Watch(module, optimizer)
        self._watches.append(watch)
        count = self.accountant.get_optimizer_hook_fn(sample_rate=self.declared.sampling_rate)

        def hook(stepping: Any) -> None:
            watch.step(stepping)
            self.check_drawn()
            batches.check_whole()
            count(stepping)

        optimizer.attach_step_hook(hook)
        drop_unusable(optimizer, batches)
        return made

    @property
    def steps(self) -> int:
        """How many steps were paid for."""
        return sum(int(count) for _, _, count in self.accountant.history)

    def check_steps(self) -> None:
        """Before a batch is drawn: each one before it has had its step, with noise of its own."""
        if self.steps < self.drawn:
            raise InvalidInput(
                "The run looked at a batch and took no step on it through its private optimizer. Take one step for "
                "each batch: gradients of several must not share one noise."
            )

    def check_drawn(self) -> None:
        """At a step: its batch was drawn for it, and has had none before."""
        if self.steps >= self.drawn:
            raise InvalidInput(
                "The run took a second step on a batch, or one on records that were not drawn at the declared rate, "
                "such as those of a DataLoader with a fixed batch size. Iterate over the loader that "
                "engine.make_private() returned, and take one step for each batch."
            )

    def check_over(self) -> None:
        """When the run is over: nothing else was trained or kept."""
        for watch in self._watches:
            watch.check()

    def _check_clip(self, given: Any) -> None:
        if self._clip is not None and not (
            isinstance(given, int | float) and abs(given - self._clip) <= 1e-9 * self._clip
        ):
            raise InvalidInput(
                f"The run clips to {given!r:.80} but declared a clip norm of {self._clip:g}. Use one of them."
            )

    def _batch_of(self, loader: Any) -> float:
        """The denominator of gradients: public, and the one that rate and number of records make, where declared."""
        if loader is self.loader and self._batch is not None:
            return self._batch
        if self.loader is not None and loader.dataset is not self.loader.dataset:
            raise InvalidInput(
                "The run trains on other records than it was given: make_private(data_loader=...) must get the loader "
                "that the training function is called with."
            )
        found = _batch_size(loader)
        if self._batch is not None and abs(found - self._batch) > 0.5:
            raise InvalidInput(
                f"The run's loader has batch_size {found:g} but the declared rate and number of records make "
                f"{self._batch:g}. Use the loader that the training function is called with."
            )
        return found if self._batch is None else self._batch

    def make_private_with_epsilon(self, **others: Any) -> Any:
        """Refused: its noise would follow the number of records."""
        raise InvalidInput(
            "'make_private_with_epsilon()' takes its noise from the number of records. Use make_private() with the "
            "declared noise."
        )

    def _prepare_data_loader(self, data_loader: Any, **others: Any) -> Any:
        self.dataset = data_loader.dataset
        if data_loader is self.loader:
            return data_loader
        return self._loader(data_loader.dataset, data_loader.collate_fn)

    def _prepare_optimizer(self, *, expected_batch_size: Any, **others: Any) -> Any:
        return super()._prepare_optimizer(expected_batch_size=self._denominator, **others)


def _batch_size(loader: Any) -> float:
    """The public denominator: what the code that made the loader wrote as its batch size."""
    if isinstance(loader.dataset, IterableDataset):
        raise InvalidInput("An IterableDataset cannot be sampled by a coin for each record. Use a Dataset.")
    found = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    if not found:
        raise InvalidInput("The data loader has no batch_size, which divides gradients. Give it one that is public.")
    return float(found)


def released(model: Any) -> Any:
    """The module itself, ready to predict, without what Opacus put around it for training."""
    if isinstance(model, opacus.GradSampleModule):
        model = model.to_standard_module().eval()
    if isinstance(model, dict) and model and all(isinstance(name, str) and name.startswith(_INNER) for name in model):
        return {name.removeprefix(_INNER): one for name, one in model.items()}  # of the module's own state dict
    return clean(model) if isinstance(model, torch.nn.Module) else model
