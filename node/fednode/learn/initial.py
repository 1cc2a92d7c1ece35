"""Initial values of arrays: normal, uniform or token embeddings; equal for equal seeds."""

from __future__ import annotations

import numpy as np

from fednode.clip.backbone import Backbone
from fednode.clip.settings import PLAIN
from fednode.core.types import Array
from fednode.errors import ConfigError
from fednode.learn.settings import AUTO, TuningSettings


def generator(seed: int) -> np.random.Generator:
    """Return numpy's generator for a seed; it draws the same numbers on all platforms."""
    return np.random.default_rng(seed)


def normal(draw: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Array:
    """Draw an array from a normal distribution with mean 0 and the given standard deviation."""
    drawn: Array = (deviation * draw.standard_normal(shape)).astype(np.float32)
    return drawn


def uniform(draw: np.random.Generator, shape: tuple[int, ...], inputs: int) -> Array:
    """Draw a linear layer's weights or bias, uniform within 1 / sqrt(inputs), as torch does."""
    limit = inputs**-0.5
    drawn: Array = draw.uniform(-limit, limit, shape).astype(np.float32)
    return drawn


def glorot(draw: np.random.Generator, shape: tuple[int, int], outputs: int) -> Array:
    """Draw a weight [rows, inputs], uniform within sqrt(6 / (inputs + outputs)).

    Source: Glorot and Bengio 2010, equation 16 (torch's xavier_uniform_). outputs: the rows of all
    weights that are drawn as one matrix.
    """
    limit = (6.0 / (shape[1] + outputs)) ** 0.5
    drawn: Array = draw.uniform(-limit, limit, shape).astype(np.float32)
    return drawn


def context(backbone: Backbone, settings: TuningSettings, draw: np.random.Generator) -> Array:
    """Return context vectors [m, width]: the embeddings of init_words, or a normal draw."""
    shape = (settings.vectors, backbone.text.width)
    if settings.init_words is None:
        return normal(draw, shape, settings.init_std)
    return words(backbone, settings.init_words, shape)


def refuse_words(settings: TuningSettings, policy: str) -> None:
    """Raise ConfigError if initial words are set for a policy that tunes nothing made of words."""
    if settings.init_words is not None:
        raise ConfigError(
            f"tuning.init_words is {settings.init_words!r}, and what policy {policy} tunes cannot "
            "begin from words: set it to null."
        )


def words(backbone: Backbone, text: str, shape: tuple[int, int]) -> Array:
    """Return the token embeddings of words. Raise ConfigError unless there are shape[0] tokens."""
    embedded: Array = backbone.text.embed_words(text).float().cpu().numpy()
    if embedded.shape != shape:
        raise ConfigError(
            f"tuning.init_words {text!r} is {len(embedded)} tokens and tuning.context_length is "
            f"{shape[0]}; make them equal."
        )
    return embedded


def notes(backbone: Backbone, settings: TuningSettings) -> list[str]:
    """Return a sentence for each setting that the model decides in its own way."""
    found = []
    if settings.context_length == AUTO and not backbone.text.fault:
        reads = backbone.text.length_max
        found.append(
            f"tuning.context_length is auto: {settings.fitted(reads).vectors} vectors, because "
            f"{backbone.label} reads {reads} tokens."
        )
    if settings.template == AUTO and backbone.template != PLAIN:
        found.append(
            f"tuning.template is auto: {backbone.template!r}, the sentence of the authors of "
            f"{backbone.label}."
        )
    return found
