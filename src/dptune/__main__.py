"""``python -m dptune`` is the command line."""

from dptune.cli import main

main()
