"""Conformance suites for methods and trainers that others write."""
