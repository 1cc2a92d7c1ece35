"""The names of Fed-DPT's arrays, and which nodes train which arrays. Pure."""

from __future__ import annotations

from fednode.policies.feddpt.config import FedDPTConfig

TEXT = "text."
VISUAL = "visual."
SHARED = "shared"
"""The text slot if all domains have one prompt together."""


def text_slots(config: FedDPTConfig) -> tuple[str, ...]:
    """Return the names of the text prompts, [m, text width] each, in the order of the domains."""
    if config.components == "visual":
        return ()
    slots = config.domains if config.components == "full" else (SHARED,)
    return tuple(TEXT + slot for slot in slots)


def visual_slots(config: FedDPTConfig) -> tuple[str, ...]:
    """Return the names of the visual tokens, [vision width] each, in the order of the domains."""
    return (
        () if config.components == "text" else tuple(VISUAL + domain for domain in config.domains)
    )


def trained(config: FedDPTConfig, domain: str) -> frozenset[str]:
    """Return the names of the arrays that a node of a domain trains and sends to others."""
    text, visual = frozenset(text_slots(config)), frozenset(visual_slots(config))
    if config.components == "full" and config.text != "train_all":
        text &= {TEXT + domain}
    if config.visual != "average":
        visual &= {VISUAL + domain}
    return text | visual
