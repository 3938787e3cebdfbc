"""A run: one execution of a component, with its accounts, its events and its end."""

from podwright.run.run import Run as Run
from podwright.run.run import Task as Task
