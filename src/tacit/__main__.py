"""``python -m tacit`` is the command ``tacit``, of use where no scripts are on the path."""

from tacit.cli.main import main

if __name__ == "__main__":
    main()
