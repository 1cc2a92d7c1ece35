"""`fednode bench wire`: rows by size, with and without TLS."""

from __future__ import annotations

import numpy as np

from fednode.lab.bench import wire as bench_wire
from fednode.wire import codec


def test_what_wire_sends_is_a_message_with_prompts_of_that_size() -> None:
    said = bench_wire.message(4096)
    read = codec.decode(codec.encode(said, "float32"))
    assert read == said
    assert sum(np.asarray(one).nbytes for one in read.tensors.values()) == 4096
