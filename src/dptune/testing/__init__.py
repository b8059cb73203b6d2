"""Conformance suites for methods and executors that others write."""
