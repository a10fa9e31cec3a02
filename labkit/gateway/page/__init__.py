"""HOST: the page that a person keeps open during a run, served by the gateway's process on a port of its own.

It shows what the gateway's ledger holds and queues commands. Its token is not the guest's: neither opens the
other's door. What agents wrote is text here and nothing else: it is set with textContent under a policy that
runs no script but ours.
"""
