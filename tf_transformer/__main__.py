"""The console command as `python -m tf_transformer`, if its script is not on the path."""

import sys

from tf_transformer.cli import main

if __name__ == "__main__":
    sys.exit(main())
