"""Tests run without a display unless they ask for one."""

import os

os.environ.setdefault("MUJOCO_GL", "disabled")
