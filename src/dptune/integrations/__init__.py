"""Adapters to the tools that people already use; each needs its own extra."""
