"""The control tunes exactly what ZeroDFL tunes (CoOp), so that only the exchange differs."""

from fednode.learn.context import ContextObjective as Objective

__all__ = ["Objective"]
