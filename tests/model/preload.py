"""What the server of forked processes loads once: the program with the clock of a walk, and what its orders name."""

import gc

from tests.model import clock, walk

__all__ = ["walk"]
clock.load_program()
gc.collect()
gc.freeze()
