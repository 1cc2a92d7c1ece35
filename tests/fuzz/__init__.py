"""Coverage-guided fuzzing of every decoder; what it found to be worth keeping is in corpus/."""
