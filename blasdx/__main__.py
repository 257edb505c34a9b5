"""``python -m blasdx`` is the command ``blasdx``."""

from blasdx.cli import main

if __name__ == "__main__":
    main()
