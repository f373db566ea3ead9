"""The engine's process under the nemesis: answers of `traffic`, and all accounts compared after every step.

Arguments: a file that gets a byte for each life, and the descriptor.
"""

import sys

from traffic import scripts

from freehold.engine.process import main
from freehold.faults import Forced, Switch

if __name__ == "__main__":
    with open(sys.argv[1], "ab") as lives:
        lives.write(b".")
    main(scripts(), [Forced(Switch.CHECK)])
