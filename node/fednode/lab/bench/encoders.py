"""The two sides of the benchmark behind one interface: open_clip's encoders and fednode's."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.clip.blocks import attend
from fednode.clip.vision import Seen
from fednode.clip.whole import embedding_of
from fednode.lab.bench.floor import hybrid


class Encoders(Protocol):
    """Encode class names behind prompts, and images with prompts."""

    def texts(self, context: Tensor, deep: Tensor | None = None) -> Tensor:
        """Return unit features [classes, D] for [m, width], [N, classes, D] for [N, m, width]."""
        ...

    def images(self, pixels: Tensor, prompts: Tensor | None = None) -> Seen:
        """Return unit features, and the last block's class-token query and prompt keys."""
        ...


class Plain:
    """open_clip's modules, called as the papers' code calls them: every text at full length.

    In bfloat16 the whole model is cast, weights and activations: the fastest mode that open_clip
    offers. torch's bfloat16 attention is slow on a CPU, so there this side uses fednode's
    attention.
    """

    def __init__(self, frozen: Backbone, names: tuple[str, ...], context_length: int) -> None:
        model: Any = frozen.model
        if frozen.precision == "bfloat16":
            model = copy.deepcopy(model).to(torch.bfloat16)
        self._visual, self._transformer = model.visual, frozen.vision.plain
        # A convolutional trunk stays in float32: bfloat16 convolutions are slow on most processors.
        self._embeds = frozen.model if hybrid(frozen) else model
        self._model, self._text = model, getattr(model, "text", model)
        self._shares, self._begin = frozen.text.shares, frozen.text.begin
        self._dtype = next(self._text.parameters()).dtype
        held = " ".join(["X"] * context_length)
        texts = [f"{held} {name}." for name in names]
        self._ids = frozen.tokenizer(texts, frozen.text.length_max).to(frozen.device)

    def texts(self, context: Tensor, deep: Tensor | None = None) -> Tensor:
        if context.dim() == 3:
            return torch.stack([self.texts(client) for client in context])
        if not self._shares:
            return self._whole(context)
        tower, ids, length = self._text, self._ids, len(context)
        embedded = tower.token_embedding(ids)
        shared = context.to(self._dtype).expand(len(ids), -1, -1)
        x = torch.cat([embedded[:, :1], shared, embedded[:, 1 + length :]], dim=1)
        x = x + tower.positional_embedding
        mask = tower.attn_mask.to(self._dtype)
        for number, block in enumerate(tower.transformer.resblocks):
            if deep is not None and 0 < number <= len(deep):
                fresh = deep[number - 1].to(self._dtype).expand(len(ids), -1, -1)
                x = torch.cat([x[:, :1], fresh, x[:, 1 + length :]], dim=1)
            x = self._run(block, x, mask)
        x = tower.ln_final(x)[torch.arange(len(x), device=x.device), ids.argmax(dim=-1)]
        return F.normalize((x @ tower.text_projection).float(), dim=-1)

    def _whole(self, context: Tensor) -> Tensor:
        """Encode whole texts by `encode_text`, with the vectors behind the beginning."""
        begin, length = self._begin, len(context)

        def put(_: Any, __: Any, out: Tensor) -> Tensor:
            fresh = context.to(out.dtype).expand(len(out), -1, -1)
            return torch.cat([out[:, :begin], fresh, out[:, begin + length :]], dim=1)

        handle = embedding_of(self._text).register_forward_hook(put)
        try:
            out = self._model.encode_text(self._ids)
        finally:
            handle.remove()
        return F.normalize((out[0] if isinstance(out, tuple) else out).float(), dim=-1)

    def images(self, pixels: Tensor, prompts: Tensor | None = None) -> Seen:
        tower = self._visual
        if not self._transformer:
            raw = tower(pixels.to(self._dtype)).float()
            return Seen(F.normalize(raw, dim=-1), raw, raw[:0], raw[:0])
        if prompts is None:
            prompts = pixels.new_zeros(1, 0, tower.positional_embedding.shape[1])
        count = prompts.shape[1]
        embed = self._embeds.visual
        x = embed.conv1(pixels.to(embed.class_embedding)).flatten(2).transpose(1, 2)
        x = x.to(self._dtype)
        first = tower.class_embedding.expand(len(x), 1, -1)
        x = torch.cat([first, x], dim=1) + tower.positional_embedding
        shallow = prompts[0].to(self._dtype).expand(len(x), -1, -1)
        x = tower.ln_pre(torch.cat([x, shallow], dim=1))
        query = keys = x
        for number, block in enumerate(tower.transformer.resblocks):
            if 0 < number < len(prompts):
                fresh = prompts[number].to(self._dtype).expand(len(x), -1, -1)
                x = torch.cat([x[:, :-count], fresh], dim=1)
            if count and number + 1 == len(tower.transformer.resblocks):
                query, keys = self._looks(block, x, count)
            x = self._run(block, x, None)
        raw = (tower.ln_post(x[:, 0]) @ tower.proj).float()
        return Seen(F.normalize(raw, dim=-1), raw, query, keys)

    def _run(self, block: Any, x: Tensor, mask: Tensor | None) -> Tensor:
        """Run open_clip's own block; in bfloat16 on a CPU, replace its attention."""
        attention = block.attn
        if self._dtype != torch.bfloat16 or x.device.type != "cpu":
            whole: Tensor = block(x, attn_mask=mask)
            return whole
        packed = F.linear(block.ln_1(x), attention.in_proj_weight, attention.in_proj_bias)
        shape = (len(x), x.shape[1], 3, attention.num_heads, -1)
        q, k, v = packed.view(shape).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + block.ls_1(attention.out_proj(attend(q, k, v, mask)))
        out: Tensor = x + block.ls_2(block.mlp(block.ln_2(x)))
        return out

    def _looks(self, block: Any, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the last block's query of the class token and keys of the prompts."""
        attention, width = block.attn, x.shape[2]
        normed = block.ln_1(torch.cat([x[:, :1], x[:, -count:]], dim=1))
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        both = F.linear(normed, weight[: 2 * width], bias[: 2 * width])
        q, k = both.view(len(x), 1 + count, 2, attention.num_heads, -1).transpose(1, 3).unbind(2)
        return q[:, :, 0], k[:, :, 1:]


class Ours:
    """The towers that nodes run."""

    def __init__(self, frozen: Backbone, names: tuple[str, ...], context_length: int) -> None:
        self._frozen = frozen
        self._tokens = frozen.text.tokens(names, context_length)

    def texts(self, context: Tensor, deep: Tensor | None = None) -> Tensor:
        return self._frozen.text.encode(self._tokens, context, deep)

    def images(self, pixels: Tensor, prompts: Tensor | None = None) -> Seen:
        return self._frozen.vision.encode(pixels, prompts)


class Cached(Ours):
    """The towers that nodes run, with cached images: each image's tokens are computed once."""

    def __init__(self, frozen: Backbone, names: tuple[str, ...], context_length: int) -> None:
        super().__init__(frozen, names, context_length)
        self._known: tuple[Tensor, Tensor] | None = None

    def images(self, pixels: Tensor, prompts: Tensor | None = None) -> Seen:
        if self._known is None or self._known[0] is not pixels:
            self._known = pixels, self._frozen.vision.tokens(pixels)
        return self._frozen.vision.encode(self._known[1], prompts)
