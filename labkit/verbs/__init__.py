"""HOST: the verbs of the command line, one module a group."""
