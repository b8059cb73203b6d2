"""Pages and figures for people: a release, a ledger, a rehearsal, a comparison.

A page is one file of HTML without scripts or requests. It is made from public values alone; a rehearsal's page shows
everything, and is for public and synthetic data.
"""

from dptune.report.pages import report

__all__ = ["report"]
