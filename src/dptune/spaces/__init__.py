"""What may be tried: spaces of parameters, explicit lists and grids, with public priors.

A space is declared before data is touched and never changes afterwards; the prior is the law from which methods
sample (``docs/theorems/mixture.md``). Sampling maps uniforms that the caller draws from the operating system (or from a
run's secret) to parameters; nothing here may look at data.
"""

from dptune.spaces.candidates import Candidates
from dptune.spaces.dimensions import Choice, Dimension, Float, Int
from dptune.spaces.product import Domain, Space, space_from_json

__all__ = ["Candidates", "Choice", "Dimension", "Domain", "Float", "Int", "Space", "space_from_json"]
