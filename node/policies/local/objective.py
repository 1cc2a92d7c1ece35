"""The control tunes exactly what ZeroDFL tunes (CoOp), so that only the exchange differs."""

from node.learn.context import ContextObjective as Objective

__all__ = ["Objective"]
