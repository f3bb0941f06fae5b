"""The peers: small programs, each as its own documentation would write it, run in an environment of their own."""
