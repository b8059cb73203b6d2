"""What an Opacus run must not do beside its paid steps, watched while it trains and checked when it is over.

Everything here follows from the training function's own code, so a run on blank records shows it before the charge:
other parameters or buffers that change are functions of records that nobody paid for, a clip norm that changes is not
the one that noise was made for, and a batch without a step is looked at without noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dptune.errors import InvalidInput

__all__ = ["Watch", "check_options", "clean", "drop_unusable", "secret_generator"]

_MODES = ("hooks", "functorch", "ew")  # of gradients of single records

_WORDS = 624  # the whole state of torch's generator on the processor: manual_seed() would use 32 bits
_BEFORE = 24  # bytes of its description that stand before the words


def secret_generator(rng: np.random.Generator) -> torch.Generator:
    """A generator of torch whose whole state is secret, for noise and coins: no seed that a function sets changes it.

    Args:
        rng: the run's own generator.

    Returns:
        The generator.
    """
    made = torch.Generator().manual_seed(0)
    state = made.get_state().numpy().copy()
    words = rng.integers(0, 2**32, _WORDS, dtype=np.uint64)
    words[0] |= np.uint64(2**31)  # never all zeros, at which it would stay
    state[_BEFORE : _BEFORE + 8 * _WORDS] = words.view(np.uint8)
    made.set_state(torch.from_numpy(state))
    return made


class Watch:
    """The state of a module that must not change but by paid steps.

    Args:
        module: what is trained.
        optimizer: the private one, which Opacus made.
    """

    def __init__(self, module: Any, optimizer: Any) -> None:
        self._module, self._optimizer = module, optimizer
        self._norms = self._clip_norms()
        self._others = self._others_now()

    def _clip_norms(self) -> str:
        return repr([getattr(self._optimizer, name, None) for name in ("max_grad_norm", "max_grad_norms")])

    def _others_now(self) -> dict[str, bytes]:
        """Buffers, and parameters that the private optimizer does not train."""
        trained = {id(p) for p in self._optimizer.params}
        others = [(name, p) for name, p in self._module.named_parameters() if id(p) not in trained]
        return {name: _bytes(one) for name, one in [*others, *self._module.named_buffers()]}

    def step(self, optimizer: Any) -> None:
        """Called at every paid step."""
        if optimizer is not self._optimizer or self._clip_norms() != self._norms:
            raise InvalidInput(
                "The clip norm changed while the run trained, but its noise is made for one. Keep max_grad_norm."
            )

    def check(self) -> None:
        """Called when the run is over.

        Raises:
            InvalidInput: something else was trained, or kept, than what the private optimizer trains.
        """
        now = self._others_now()
        changed = sorted(name for name in now.keys() | self._others.keys() if now.get(name) != self._others.get(name))
        if changed:
            raise InvalidInput(
                f"The run changed {changed[0]!r:.80}, which its private optimizer does not train: a buffer, or a "
                "parameter of another optimizer, takes values of records that nothing pays for. Train all through "
                "the optimizer that engine.make_private() returned, and keep no running statistics."
            )


def _bytes(tensor: Any) -> bytes:
    return bytes(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy()) if tensor.numel() else b""


def drop_unusable(optimizer: Any, batches: Any) -> None:
    """Let records whose gradient is not finite add nothing, as everywhere in dptune: one would destroy the sum. Neither
    does the blank record that stands for an empty batch.

    Args:
        optimizer: a private one; its ``clip_and_accumulate`` is wrapped.
        batches: knows whether the present batch is an empty one (``blank``), and what tries the function (``probe``);
            counts gradients (``take``).
    """
    inner = optimizer.clip_and_accumulate

    def clipped() -> None:
        parts = [p.grad_sample if isinstance(p.grad_sample, list) else [p.grad_sample] for p in optimizer.params]
        rows = [sum(len(one) for one in part if isinstance(one, torch.Tensor)) for part in parts]
        batches.take(max(rows, default=0))
        if batches.probe is not None:
            batches.probe.look(parts)
        if batches.blank:
            for one in (one for part in parts for one in part if isinstance(one, torch.Tensor)):
                one.zero_()
        if all(isinstance(one, torch.Tensor) for part in parts for one in part):
            for together in zip(*parts, strict=True):
                finite = torch.stack([one.reshape(len(one), -1).isfinite().all(dim=1) for one in together]).all(dim=0)
                for one in together:
                    one[~finite] = 0.0
        inner()

    optimizer.clip_and_accumulate = clipped


def check_options(others: dict[str, Any]) -> None:
    """Refuse options of ``make_private`` under which nothing here could vouch for what a run does.

    Args:
        others: the options; a ``noise_generator`` that is None is taken out.

    Raises:
        InvalidInput: one of them samples, clips or draws otherwise than declared.
    """
    if not others.get("poisson_sampling", True):
        raise InvalidInput(
            "'poisson_sampling=False' trains on shuffled batches, which the accountant does not cover. Leave it out."
        )
    if others.get("noise_generator") is not None:
        raise InvalidInput("A 'noise_generator' of your own could be guessed or repeated; the run draws its own noise.")
    others.pop("noise_generator", None)
    if (mode := others.get("grad_sample_mode", "hooks")) not in _MODES or not others.get("wrap_model", True):
        raise InvalidInput(
            f"The mode {mode!r:.40} clips only if its own loss is used, which nothing checks; or the module is not "
            f"wrapped. Use grad_sample_mode={' or '.join(map(repr, _MODES))}."
        )
    if others.get("clipping", "flat") == "adaptive":
        raise InvalidInput(
            "The option clipping='adaptive' divides by the true size of a batch. Use 'flat' or 'per_layer'."
        )
    if isinstance(others.get("module"), torch.nn.parallel.DistributedDataParallel):
        raise InvalidInput("A distributed module samples at each node by itself. Train on one node.")


def clean(module: Any) -> Any:
    """Remove what training left on parameters: gradients, of single records too, are no part of what was paid for.

    Args:
        module: a trained one, unwrapped.

    Returns:
        The same module.
    """
    for p in module.parameters():
        p.grad = None
        for name in list(vars(p)):
            delattr(p, name)
    return module
