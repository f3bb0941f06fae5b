"""`python -m batchpay` is the command `batchpay`."""

from batchpay.cli.main import main

if __name__ == "__main__":
    main()
