"""The gradient updates of TD-MPC2: batches, losses, optimiser steps and their metrics."""
