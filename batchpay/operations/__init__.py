"""What unattended runs need around them: inbox and archive, logs, metrics, a ping. None of it can change a payment."""
