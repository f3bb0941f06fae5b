"""batchpay: check a file of bank payments, send it through an ACH gateway, never pay twice, lose nothing."""

__version__ = "0.2.0"
