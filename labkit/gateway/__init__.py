"""HOST: the gateway: the one process that holds the provider key and the only address the guest knows.

It relays model calls within a budget, keeps the host's own copy of every event, and hands out commands.
`labkit.gateway.process` starts and stops it; `python -m labkit.gateway RUN_DIR` runs it in the foreground.
Runs on Linux, macOS and Windows: nothing here may import a POSIX-only module (a contract test holds that).
"""
