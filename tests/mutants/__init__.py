"""Teeth: small changes of the program, made at random from a seed, that some test must notice."""
