"""TESTS: serves a small real model on a loopback port; wants xllamacpp (docs/realmodel.md).

usage: python local_model.py PORT    ends with its standard input
"""

import sys
from pathlib import Path

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = str(next(Path(sys.prefix).rglob("SmolLM2*.gguf")))
parameters.hostnames, parameters.port = ["127.0.0.1"], int(sys.argv[1])
parameters.n_ctx, parameters.n_parallel, parameters.use_jinja = 8192, 1, True
server = xllamacpp.Server(parameters)
sys.stdin.read()
