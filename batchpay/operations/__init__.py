"""What unattended runs need: inbox and archive, logs, metrics, a ping. None of it can change a payment."""
