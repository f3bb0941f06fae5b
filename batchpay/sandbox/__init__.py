"""The gateway's whole interface on loopback, with its own state and its own checks, for trials without credentials.

It shares no code with `batchpay.gateway` or with the rules in `batchpay.schemas`, so that a mistake can't agree with
itself. Start it with `batchpay sandbox`, or from Python:

    from batchpay.sandbox.options import Options
    from batchpay.sandbox.server import running, serve

    with running(Options(port=0)) as url: ...     # in a thread of this process
    serve(Options(), ready=print)                 # in this thread, until SIGINT or SIGTERM

`batchpay.sandbox.server.create_app(Options())` is the bare Flask application; it can't cut a connection.
"""
