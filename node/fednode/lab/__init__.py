"""The laboratory: experiments, simulated faults, demo and trackers. No node needs it."""
