"""ZeroDFL tunes one prompt of context vectors, shared by all classes (METHODS section 1)."""

from fednode.learn.context import ContextObjective as Objective

__all__ = ["Objective"]
