"""The second rule of the house, for import-linter: a private module is imported inside its own package only.

A module is private if a part of its dotted name begins with an underscore. The package that may import it is the one
that holds that part: ``dptune.accounting._pld`` belongs to ``dptune.accounting``, ``dptune._files`` to ``dptune``.
"""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output

__all__ = ["PrivateModules", "owner"]


def owner(module: str) -> str | None:
    """The package inside which a module may be imported; None if it is public.

    >>> owner("dptune.methods._machinery.costs")
    'dptune.methods'
    >>> owner("dptune.methods.subset") is None
    True
    """
    parts = module.split(".")
    for place, part in enumerate(parts):
        if part.startswith("_") and not part.startswith("__"):
            return ".".join(parts[:place])
    return None


class PrivateModules(Contract):
    """Fails with the list of imports of private modules from outside of their packages."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """See import-linter's documentation of custom contracts."""
        del verbose
        found = []
        for imported in sorted(graph.modules):
            package = owner(imported)
            if package is None:
                continue
            for importer in sorted(graph.find_modules_that_directly_import(imported)):
                if importer != package and not importer.startswith(package + "."):
                    found.append(f"{importer} imports {imported}, which is private to {package}")
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line for each import."""
        for line in check.metadata["found"]:
            output.print_error(line)
