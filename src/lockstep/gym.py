"""Importing this registers Lockstep's environments with Gymnasium: `import gymnasium, lockstep.gym`.

Apart from `import lockstep`, since Gymnasium takes most of a second to import and a training has no use for it.
"""

from lockstep.workloads.registry import register_environments

register_environments()
