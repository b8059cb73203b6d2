"""The tuning methods: one file, one method, one theorem."""

from dptune.methods.base import Budget, Outcome, Plan, Selection, Trial, plan_from_json

__all__ = ["Budget", "Outcome", "Plan", "Selection", "Trial", "plan_from_json"]
