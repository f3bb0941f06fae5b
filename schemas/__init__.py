"""The rules of a payment row, one pandera schema a node of the request; imported as batchpay.schemas."""
