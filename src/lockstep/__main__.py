"""`python -m lockstep`, and what every launched rank runs."""

from lockstep.cli.main import main
from lockstep.launch import rank_process

if __name__ == "__main__":
    rank_process.leave(main())
