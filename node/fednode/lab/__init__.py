"""The laboratory: experiments, simulated faults, demo, benches and trackers. No node needs it."""
