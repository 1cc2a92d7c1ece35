"""Scenarios full of faults for the simulator, and the checkers that judge every step."""
