"""HOST: the rehearsal: a scripted provider that plays Worker, Inspector and digest without a key or internet.

`script.yml` is what the Worker does, `rules.yml` what the Inspector objects to, `pages/` what is fetched.
"""

from labkit.gateway.providers.rehearsal.app import build

__all__ = ["build"]
