"""The version of batchpay, for all that names it."""

__version__ = "0.2.0"
