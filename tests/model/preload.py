"""What the server of forked processes loads once: the whole program, and the clock of a walk."""

from tests.model import clock

clock.load_program()
