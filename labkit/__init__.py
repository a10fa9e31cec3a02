"""HOST: the command line, the gateway and the analysis."""
