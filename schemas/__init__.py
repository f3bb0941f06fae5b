"""The rules of a payment row, one pandera schema per node of the request; imported as batchpay.schemas."""
