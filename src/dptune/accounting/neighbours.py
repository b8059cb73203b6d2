"""Which data sets count as neighbours: what a guarantee hides.

Every :class:`~dptune.accounting.cost.Cost` carries one of these values (``docs/theorems/relations.md``). Costs of
different relations are never put together; the conversions are in :mod:`dptune.accounting.conversions`. Whatever is
said to people about a guarantee is derived from the value here, never written beside it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dptune._codec import register_text
from dptune._validate import integer
from dptune.errors import InvalidInput

__all__ = [
    "ADDED_OR_REMOVED",
    "CLIENT_REPLACED",
    "RECORD_REPLACED",
    "Neighbours",
    "check_relation",
    "neighbours_from_text",
]

_KNOWN = (("record", "added or removed"), ("record", "replaced"), ("client", "replaced"))
_VERBS = {"added or removed": ("add or remove", "adding or removing"), "replaced": ("replace", "replacing")}
_TEXT = re.compile(r"(?:one|at most (\d{1,7})) (record|client)(s?) (added or removed|replaced)")
_MOST = 10**6


@dataclass(frozen=True)
class Neighbours:
    """A neighbouring relation: two data sets are neighbours if they differ by this.

    Three exist, as constants: ``ADDED_OR_REMOVED`` (one record more or fewer, the default of every mechanism),
    ``RECORD_REPLACED`` (one record has other contents) and ``CLIENT_REPLACED`` (all data of one client are others).
    Each has groups: "at most k records added or removed" are those of one unit, all added or all removed.

    Args:
        what: "record" or "client".
        change: "added or removed" or "replaced".
        most: how many of them may differ at once.

    Raises:
        InvalidInput: there is no such relation.

    Example:
        >>> print(ADDED_OR_REMOVED)
        one record added or removed
        >>> print(ADDED_OR_REMOVED.group(5))
        at most 5 records added or removed
    """

    what: str
    change: str
    most: int = 1

    def __post_init__(self) -> None:
        if (self.what, self.change) not in _KNOWN:
            known = ", ".join(f"{what} {change}" for what, change in _KNOWN)
            raise InvalidInput(f"A neighbouring relation is one of {known}; got {self.what!r} {self.change!r}.")
        hint = "It is the largest number of records that one unit has."
        object.__setattr__(self, "most", integer("most", self.most, 1, _MOST, hint=hint))

    def __str__(self) -> str:
        count = f"one {self.what}" if self.most == 1 else f"at most {self.most} {self.what}s"
        return f"{count} {self.change}"

    @property
    def single(self) -> Neighbours:
        """The relation of one where this is that of a group.

        Example:
            >>> ADDED_OR_REMOVED.group(5).single == ADDED_OR_REMOVED
            True
        """
        return replace(self, most=1)

    def group(self, most: int) -> Neighbours:
        """The relation of at most ``most`` at once.

        Args:
            most: how many records one unit has at most.

        Returns:
            The relation of the group.

        Raises:
            InvalidInput: this is the relation of a group already, or ``most`` is not a whole number from 1 on.

        Example:
            >>> print(RECORD_REPLACED.group(3))
            at most 3 records replaced
        """
        if self.most > 1:
            raise InvalidInput(f"The relation '{self}' is that of a group already; group the one of a single change.")
        return replace(self, most=most)

    def phrase(self, unit: str = "record", verb: str = "imperative") -> str:
        """How a statement says it.

        Args:
            unit: what the custodian calls a unit of privacy: record, patient, user.
            verb: "imperative" (add or remove) or "gerund" (adding or removing).

        Returns:
            A phrase without a full stop.

        Example:
            >>> ADDED_OR_REMOVED.phrase("patient")
            'add or remove one patient'
            >>> ADDED_OR_REMOVED.group(5).phrase("patient", "gerund")
            'adding or removing one patient with at most 5 records'
            >>> CLIENT_REPLACED.phrase(verb="gerund")
            'replacing all data of one client'
        """
        said = _VERBS[self.change][verb == "gerund"]
        if self.what == "client":
            return f"{said} all data of {'one client' if self.most == 1 else f'at most {self.most} clients'}"
        if self.most == 1:
            return f"{said} one {unit}"
        return (
            f"{said} at most {self.most} records"
            if unit == "record"
            else f"{said} one {unit} with at most " + (f"{self.most} records")
        )

    def unit_assumption(self, unit: str) -> str | None:
        """What must be true of the data for a guarantee under this relation to be one about units.

        Args:
            unit: what the custodian calls a unit of privacy.

        Returns:
            A sentence for the statement, or None where a unit is a record (or a client, which is named already).

        Example:
            >>> ADDED_OR_REMOVED.unit_assumption("record") is None
            True
            >>> print(ADDED_OR_REMOVED.group(5).unit_assumption("patient"))
            Every patient has at most 5 records; one that has more is not covered as a whole.
        """
        if unit == "record" or self.what == "client":
            return None
        if self.most == 1:
            return (
                f"One record for each {unit} is assumed: the account is for one record, and a {unit} with several "
                "is not covered as a whole."
            )
        return f"Every {unit} has at most {self.most} records; one that has more is not covered as a whole."


ADDED_OR_REMOVED = Neighbours("record", "added or removed")
RECORD_REPLACED = Neighbours("record", "replaced")
CLIENT_REPLACED = Neighbours("client", "replaced")


def check_relation(value: object) -> Neighbours:
    """Return ``value`` if it is a relation, or say what was expected.

    Args:
        value: what was given.

    Returns:
        The relation.

    Raises:
        InvalidInput: it is something else.

    Example:
        >>> print(check_relation(RECORD_REPLACED))
        one record replaced
    """
    if not isinstance(value, Neighbours):
        raise InvalidInput(f"'neighbours' must be a relation such as RECORD_REPLACED; got {value!r:.80}.")
    return value


def neighbours_from_text(text: object) -> Neighbours:
    """Read what ``str`` of a relation wrote.

    Args:
        text: for example "one record replaced" or "at most 5 records added or removed".

    Returns:
        The relation.

    Raises:
        InvalidInput: there is no such relation.

    Example:
        >>> neighbours_from_text("at most 5 records added or removed") == ADDED_OR_REMOVED.group(5)
        True
    """
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is not None:
        made = Neighbours(found[2], found[4], int(found[1] or 1))
        if str(made) == text:
            return made
    raise InvalidInput(
        "A neighbouring relation is 'one record added or removed', 'one record replaced', 'one client replaced', or "
        f"'at most k' of them; got {text!r:.80}."
    )


register_text(Neighbours, neighbours_from_text)
