"""Files that a crash or a power loss must not harm: prompts, journal, keys, accounts."""
