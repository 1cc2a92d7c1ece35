"""PromptFL tunes one prompt of context vectors, as CoOp does; only the exchange differs."""

from fednode.learn.context import ContextObjective as Objective

__all__ = ["Objective"]
