"""The version of dptune, on the ground floor: everybody may read it."""

__version__ = "0.1.0"
