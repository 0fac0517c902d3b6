"""`python -m diptych` is the `diptych` command."""

from diptych.cli.main import main

main()
