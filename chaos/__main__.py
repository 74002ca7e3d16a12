"""`python -m chaos`: the command, where its script is not on the path."""

from chaos.cli import main

main()
