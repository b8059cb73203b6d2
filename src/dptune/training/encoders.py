"""Public encoders: frozen functions of one record, such as a network that was trained on other, public data.

An encoder costs no privacy if two things hold, and the statement of a release names both: it was made without the
private records, and what it says of one record depends on that record alone. The second is kept up here: records are
encoded one at a time from the same state of the process, and one that cannot be encoded becomes zeros. A file may
*name* an encoder but never loads it: importing one runs its code, so that is left to the user. How a record is read,
encoded and repaired stays together here, because the promise is about all three.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dptune import _memory, _validate
from dptune._typing import AnyArray, Floats
from dptune.errors import InvalidInput
from dptune.judging import is_module
from dptune.tables.map_style import apart, plain_array
from dptune.training._encoding import module_hash, row_of, same_everywhere, scaled

__all__ = ["PublicEncoder", "encoder_of", "importable", "is_encoder", "named_encoder"]

_NAME = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")
_KEY = re.compile(rf"({_NAME.pattern})@([0-9a-f]{{64}})")
_KNOWN: dict[str, PublicEncoder] = {}  # by name, the newest


@dataclass(frozen=True, eq=False)
class PublicEncoder:
    """A frozen public function of one record, whose outputs are the features that a model is trained on.

    Outputs are centred and scaled to length one, record by record. A record on which the function raises, or whose
    outputs are not ``width`` numbers, becomes zeros. The function must keep nothing of a record for the next one.

    Args:
        name: Where others find this very object: "package.module:attribute". A released model carries the name.
        function: A ``torch.nn.Module`` (put into evaluation mode; it is given one record at a time, as a batch of one)
            or any function of one record that returns numbers.
        width: How many numbers it returns.
        shape: The shape of one record, for records that are numbers; None: records are handed over as they are
            (texts, for example).
        weights: What the function computes with, so that others can check that they have the same: files that are
            hashed, or the sha256 itself. Of a torch module its parameters and buffers are hashed.
        batch: Torch modules may be given so many records at once, padded to always the same number. This is done only
            if trials on public random records show the same bits at every place of a batch; otherwise each is encoded
            alone.

    Raises:
        InvalidInput: If the name is no importable one, or weights are missing.

    Example:
        >>> import numpy as np
        >>> from dptune.training import PublicEncoder
        >>> ends = PublicEncoder("my_encoders:ends", lambda row: row[[0, -1]], 2, shape=(5,), weights="0" * 64)
        >>> ends.encode(np.array([[3.0, 0, 0, 0, 1.0], [np.nan, 0, 0, 0, 0]]))
        array([[ 0.70710677, -0.70710677],
               [ 0.        ,  0.        ]], dtype=float32)
    """

    name: str
    function: Any
    width: int
    shape: tuple[int, ...] | None = None
    weights: str | Path | Sequence[str | Path] | None = None
    batch: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidInput(f"An encoder's name must be 'package.module:attribute'; got {self.name!r:.80}.")
        _validate.integer("width", self.width, 2)
        _validate.integer("batch", self.batch, 1)
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(_validate.integer("shape", one, 1) for one in self.shape))
            if math.prod(self.shape) == self.width:
                raise InvalidInput(
                    f"The encoder {self.name} turns {self.width} numbers into {self.width}: nobody could tell whether "
                    "rows were encoded already. Add one output."
                )
        if is_module(self.function):
            self.function.eval()
        elif not callable(self.function):
            raise InvalidInput(f"The encoder {self.name} must be a function or a torch module.")
        elif self.weights is None:
            raise InvalidInput(f"Say what the encoder {self.name} computes with: 'weights', files or their sha256.")
        _KNOWN[self.name] = self

    @functools.cached_property
    def sha256(self) -> str:
        """The hash of what it computes with."""
        if self.weights is None:
            return module_hash(self.function)
        if isinstance(self.weights, str) and re.fullmatch(r"[0-9a-f]{64}", self.weights):
            return self.weights
        files = [self.weights] if isinstance(self.weights, str | Path) else self.weights
        state = hashlib.sha256()
        for one in files:
            state.update(hashlib.sha256(Path(one).read_bytes()).digest())
        return hashlib.sha256(Path(files[0]).read_bytes()).hexdigest() if len(files) == 1 else state.hexdigest()

    @property
    def key(self) -> str:
        """Its name with its hash: what a trainer and a released model carry."""
        return f"{self.name}@{self.sha256}"

    def encode(self, records: Any) -> Floats:
        """The features of records, each encoded as if it were the only one.

        Args:
            records: An array or a sequence of records.

        Returns:
            One row of ``width`` numbers for each, in single precision.
        """
        made: Floats = _memory.room((len(records), self.width), np.float32)
        size = self._together
        with apart(seed=0) as each:
            for first in range(0, len(records), size):
                places = range(first, min(first + size, len(records)))
                if size == 1 or not self._block(each, records, places, made):
                    for place in places:
                        self._alone(each, records, place, made)
        return made

    @functools.cached_property
    def _together(self) -> int:
        """How many records are encoded at once: found out on public random records, never on those at hand."""
        if self.batch == 1 or self.shape is None or not is_module(self.function):
            return 1
        return self.batch if same_everywhere(self._forward, (self.batch, *self.shape)) else 1

    def _alone(self, each: Any, records: Any, place: int, made: Floats) -> None:
        """Put the features of one record into their place; zeros if it has none."""
        found: list[Floats] = []
        each.call(lambda: found.append(scaled(self._answer(records[place]), self.width)))
        made[place] = found[0] if found else 0.0

    def _answer(self, record: Any) -> AnyArray:
        if self.shape is None:
            return plain_array(self.function(record))
        row = row_of(record, self.shape)
        if not is_module(self.function):
            return plain_array(self.function(row))
        block = np.zeros((self._together, *self.shape), np.float32)
        block[0] = row
        first: AnyArray = self._forward(block)[0]
        return first

    def _block(self, each: Any, records: Any, places: range, made: Floats) -> bool:
        """Several records at once; False if something went wrong, whatever it was, and each must be tried alone."""
        assert self.shape is not None
        block = np.zeros((self._together, *self.shape), np.float32)
        rows: list[bool] = []

        def put(row: int, place: int) -> None:
            block[row] = row_of(records[place], self.shape or ())
            rows.append(True)

        for row, place in enumerate(places):
            each.call(lambda row=row, place=place: put(row, place))
        found: list[AnyArray] = []
        if len(rows) == len(places):
            each.call(lambda: found.append(self._forward(block)))
        if not found:
            return False
        for row, place in enumerate(places):
            kept: list[Floats] = []
            each.call(lambda row=row, kept=kept: kept.append(scaled(found[0][row], self.width)))
            made[place] = kept[0] if kept else 0.0
        return True

    def _forward(self, block: Floats) -> AnyArray:
        """What the module answers to a batch."""
        torch = importlib.import_module("torch")
        with torch.inference_mode():
            return plain_array(self.function(torch.from_numpy(block)))

    def describe(self) -> dict[str, Any]:
        """What a release says of it."""
        return {"name": self.name, "sha256": self.sha256, "width": self.width}


def is_encoder(name: object) -> bool:
    """Whether a name of features is that of an encoder with its hash; looks nothing up.

    Args:
        name: What a trainer or a model carries.

    Returns:
        Whether it is one.
    """
    return isinstance(name, str) and _KEY.fullmatch(name) is not None


def encoder_of(key: str) -> PublicEncoder:
    """The encoder that a key names, if this process has it; imports nothing.

    Args:
        key: A name with a hash.

    Returns:
        The encoder.

    Raises:
        InvalidInput: There is none, or it has other weights.
    """
    match = _KEY.fullmatch(key)
    name, sha256 = match.groups() if match else (key, "")
    found = _KNOWN.get(name)
    if found is None:
        raise InvalidInput(
            f"The model takes what the public encoder {name} makes of records. Import it first ('import "
            f"{name.partition(':')[0]}'; 'dptune predict' takes --features {name}): what a file names is not imported "
            "for you, since that runs code."
        )
    if found.sha256 != sha256:
        raise InvalidInput(
            f"The encoder {name} has other weights here (sha256 {found.sha256[:12]}...) than the one that the model "
            f"was trained with ({sha256[:12]}...). Install that version of it."
        )
    return found


def named_encoder(name: str) -> PublicEncoder:
    """The encoder of a name that the user gave, imported from what is installed; this runs its code.

    Args:
        name: "package.module:attribute".

    Returns:
        The encoder.

    Raises:
        InvalidInput: There is none of this name.
    """
    module, _, attribute = name.partition(":")
    try:
        found = None if module == "__main__" else getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # its text may quote records
        raise InvalidInput(
            f"The encoder {name!r:.200} cannot be imported ({type(error).__name__}); "
            f"python -c 'import {module:.100}' shows why."
        ) from None
    if not isinstance(found, PublicEncoder) or found.name != name:
        raise InvalidInput(
            f"{name!r:.200} is not a PublicEncoder of this name, so nobody could predict with the released model. "
            "Define it in a module of its own: PublicEncoder('module:attribute', ...)."
        )
    _check_again(found)
    return found


@functools.cache
def _check_again(encoder: PublicEncoder) -> None:
    """Refuse weights that every import draws anew: the released model would fit nobody's encoder."""
    module, _, attribute = encoder.name.partition(":")
    spec = getattr(sys.modules.get(module), "__spec__", None)
    if encoder.weights is not None or spec is None or spec.loader is None:
        return
    again = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(again)
        found = getattr(again, attribute, None)
    except (Exception, SystemExit):  # a module that runs only once says nothing
        return
    finally:
        _KNOWN[encoder.name] = encoder
    if isinstance(found, PublicEncoder) and found.sha256 != encoder.sha256:
        raise InvalidInput(
            f"The encoder {encoder.name!r:.200} has other weights whenever it is imported, so nobody could predict "
            "with the released model. Load its weights from a file in its module, or fix the seed there."
        )


def importable(encoder: PublicEncoder) -> PublicEncoder:
    """Refuse an encoder that others could not import by its name: nobody could use the released model.

    Args:
        encoder: The encoder.

    Returns:
        The same one.

    Raises:
        InvalidInput: It is not what its name says.
    """
    if named_encoder(encoder.name).key != encoder.key:
        raise InvalidInput(f"The encoder that {encoder.name!r} imports is another one; give that one, or rename this.")
    return encoder
