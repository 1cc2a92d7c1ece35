"""Files that a crash or a power loss must not harm: checkpoints, history, keys, accounts."""
