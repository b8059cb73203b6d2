"""Where trials run: this machine's processes, or a Ray cluster. Methods never see the difference."""

from dptune.executors.base import Executor, Result, Session, Task, Work
from dptune.executors.processes import Processes

__all__ = ["Executor", "Processes", "Result", "Session", "Task", "Work"]
