"""The environments, rewards and initial weights of a training run."""
