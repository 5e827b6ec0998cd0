"""`python -m lockstep`, and what every launched rank runs."""

from lockstep.cli import main
from lockstep.core import launch

if __name__ == "__main__":
    launch.leave(main())
