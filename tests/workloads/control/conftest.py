"""No test of these wants a screen, unless it says so."""

import os

os.environ.setdefault("MUJOCO_GL", "disabled")
