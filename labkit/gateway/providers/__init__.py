"""HOST: the places a model call can go. All speak the OpenAI chat completions format over HTTP.

`openrouter` and every other server are data (base_url, key_env in inventory); `rehearsal` is a scripted
server of our own that the gateway process runs on a loopback port, so that the relay has one code path.
"""

from labkit.gateway.providers.openai_compatible import Provider

__all__ = ["Provider"]
